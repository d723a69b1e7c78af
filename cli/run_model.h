// A model to be used: that of a run, or of a folder of Hugging Face.
//
//   const RunModel model = open_run_model({.path = "runs/one"});
//   auto decoder = open_local_decoder(model.found, {.length = model.context});
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/data/tokenizer.h"
#include "canzona/train/config.h"
#include "canzona/train/model_source.h"

namespace canzona::cli {

struct RunModelRequest {
  std::string path;  // a run, a checkpoint, or of Hugging Face
  std::optional<int64_t>
      step;               // of a checkpoint; none: the newest that is good
  std::string tokenizer;  // "": the one that lies there
};

struct RunModel {
  std::string path;
  FoundModel found;
  std::optional<int64_t> step;        // of the checkpoint
  std::optional<TrainConfig> config;  // of the run; none: there was no run
  std::string data_digest;  // of what the run was trained on; "": not known
  int64_t vocab = 0;
  int64_t context = 0;                 // tokens that it was made for
  std::optional<Tokenizer> tokenizer;  // none: bytes
  std::vector<std::string> notes;      // such as checkpoints that are damaged

  // "runs/one, step 200"
  std::string name() const;
};

// A run's checkpoint comes before its weights at the end, unless these are of a
// later step. UsageError names what is missing; CheckpointRefused, what is
// damaged.
RunModel open_run_model(const RunModelRequest& request);

// --run, --step and --tokenizer.
void add_run_model_options(CLI::App& app, RunModelRequest& request);

// Members "run", "weights" and, of a checkpoint, "step".
void write_run_model(JsonWriter& out, const RunModel& model);

// The tokenizer.json in a folder, or that of the run whose checkpoint it is; ""
// if there is none.
std::string tokenizer_beside(const std::string& folder);
// The path that it would have.
std::string tokenizer_path(const std::string& folder);

}  // namespace canzona::cli
