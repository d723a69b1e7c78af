// Converts checkpoints to Hugging Face folders and back.
//
//   HfExported done = export_hf(reader, {.folder = "out"});
//   HfImported made = import_hf("Qwen3-0.6B", "runs/qwen/ckpt", "me");
//
// The folder appears by one rename, complete or not at all. One tensor at a
// time is in memory. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/checkpoint/hf_config.h"
#include "canzona/checkpoint/hf_weights.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/model/decoder_config.h"

namespace canzona {

// `context` is the longest context that the model is made for, in tokens, if
// that is more than the decoder's sequence.
HfNumbers hf_numbers_of(const DecoderConfig& decoder, int64_t context = 0);

struct HfExportRequest {
  std::string folder;  // new, or empty
  WeightFormat format = {};
  std::string tokenizer = {};  // text of a tokenizer.json; "": none
};

struct HfExported {
  int64_t step = 0;
  std::string model_type = {};  // "qwen3"
  int64_t parameters = 0;
  std::vector<HfFile> files = {};
  int64_t bytes = 0;  // of all data
};

// Writes the weights of a checkpoint, whatever number of ranks saved it, under
// the names of transformers, with config.json. Throws UsageError if the folder
// is not empty or no architecture of transformers matches this model; throws
// StorageError if there is not enough space.
HfExported export_hf(const CheckpointReader& reader,
                     const HfExportRequest& request);

struct HfImported {
  // The folder that was read, or the newest checkpoint of a run.
  std::string source;
  std::vector<std::string> notes = {};  // for the user
  std::string path;                     // "runs/qwen/ckpt/step_00000000"
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

// Makes a checkpoint of step 0 with the weights of a Hugging Face folder, or of
// a run that has left such weights, as fp32 and without optimizer states;
// `train --init` starts from it. `store` is the folder of checkpoints, which
// must be empty; `owner` is shown to other processes that want it.
HfImported import_hf(const std::string& folder, const std::string& store,
                     const std::string& owner);

}  // namespace canzona
