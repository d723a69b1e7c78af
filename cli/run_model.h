// Opens a model of a run or of a Hugging Face folder.
//
//   const RunModel model = open_run_model({.path = "runs/one"});
//   auto decoder = open_local_decoder(model.found, {.length = model.context});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/data/tokenizer.h"
#include "canzona/report/document.h"
#include "canzona/train/config.h"
#include "canzona/train/model_source.h"
#include "cli/options.h"

namespace canzona::cli {

struct RunModelRequest {
  std::string path;             // a run, a checkpoint, or a Hugging Face folder
  std::optional<int64_t> step;  // of a checkpoint; none: the newest valid one
  std::string tokenizer;        // "": the one in the folder
};

struct RunModel {
  std::string path;
  FoundModel found;
  std::optional<int64_t> step;        // of the checkpoint
  std::optional<TrainConfig> config;  // of the run; none: no run
  std::string data_digest;  // of the run's training data; "": not known
  int64_t vocab = 0;
  int64_t context = 0;                 // context that it was made for, in
                                       // tokens
  std::optional<Tokenizer> tokenizer;  // none: bytes
  std::vector<std::string> notes;      // such as damaged checkpoints

  // "runs/one, step 200"
  std::string name() const;
};

// A run's checkpoint is preferred to its final weights, unless these are of a
// later step. UsageError names what is missing; CheckpointRefused, what is
// damaged.
RunModel open_run_model(const RunModelRequest& request);

// --run, --step and --tokenizer.
OptionRows run_model_options(RunModelRequest& request);

// The members "run", "weights" and, for a checkpoint, "step".
Document run_model_members(const RunModel& model);

// Returns the path of the tokenizer.json in a folder, or of the run whose
// checkpoint it is; "" if there is none.
std::string tokenizer_beside(const std::string& folder);
// Returns the path that it would have.
std::string tokenizer_path(const std::string& folder);

}  // namespace canzona::cli
