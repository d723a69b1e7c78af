// A model with its weights, wherever it was left: a folder of Hugging Face, a
// checkpoint, or a run's folder (its newest checkpoint that verifies, or its
// weights at the end where there is none or they are of a later step). `train
// --init` starts from one; import-hf, sample and eval read it.
//
//   const FoundModel found = find_model("Qwen3-0.6B");
//   auto decoder = open_local_decoder(found, {.length = 256});
//
// To choose among what a run has left, all bytes of it are read, unless only
// its settings are asked for; of other folders names and shapes are read until
// somebody asks for elements. A folder that cannot be read is refused as
// HfFolder and CheckpointReader refuse it; UsageError for a path that is none
// of these, and for a model that the decoder cannot do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/weight_source.h"
#include "canzona/shapes/tensor.h"
#include "canzona/train/config.h"
#include "canzona/train/local_decoder.h"
#include "canzona/train/settings.h"

namespace canzona {

// The weights that were chosen, and what was passed over for them.
struct ChosenWeights {
  std::string path;            // "runs/one/ckpt/step_00000100"
  bool is_checkpoint = false;  // else model.safetensors or several in a folder
  // For the user: what is damaged and was passed over, with the reason.
  std::vector<std::string> notes = {};
};

// The care with which bytes are looked at before a choice is made.
enum class WeightCheck {
  kFiles,  // the small files of checkpoints are sound, the others are there
  kBytes,  // every byte is the one that was written
};

// Returns the folder's weights. Of a run: those of the newest checkpoint that
// is sound, or of its end if they are sound and of a later step. A folder in
// which there is no run is chosen itself, whatever it holds. CheckpointRefused
// lists what is damaged if nothing else is there.
ChosenWeights choose_weights(const std::string& folder,
                             WeightCheck check = WeightCheck::kBytes);

struct FoundModel {
  std::string path;                     // "runs/one/ckpt/step_00000100"
  bool is_checkpoint = false;           // else a folder of Hugging Face
  Settings settings;                    // the architecture, as --model gives it
  std::vector<std::string> notes = {};  // as in ChosenWeights
};

FoundModel find_model(const std::string& path,
                      WeightCheck check = WeightCheck::kBytes);

// The folder of a run's checkpoints, or the path itself if it is one; "" if
// there are no checkpoints.
std::string checkpoint_store_in(const std::string& path);

// The configuration of the run that saved a checkpoint.
TrainConfig saved_config(const CheckpointReader& reader);

// False for weights that import_hf() brought: no run saved them, so there is
// nothing to resume, and their configuration says nothing of data or batches.
bool has_run_state(const CheckpointReader& reader);

// Names and shapes are compared with the model's.
std::shared_ptr<const WeightSource> open_weights(const FoundModel& found,
                                                 const Model& model);

// Returns what a run begins with: config.init; null if it has none. Adds what
// the user should know of it to the notes.
std::shared_ptr<const WeightSource> initial_weights(
    const TrainConfig& config, const Model& model,
    std::vector<std::string>& notes);

// Throws CheckpointRefused that names the tensor if a value is not finite: no
// run can begin with it.
void require_finite(const WeightSource& source, const Tensor& tensor,
                    std::span<const float> values);

// Reads the shard of tp rank `t`, whose values must be finite; any thread.
void read_shard(const WeightSource& source, const Tensor& tensor, int32_t tp,
                int32_t t, std::span<float> shard);

// The whole model in this process.
struct LocalSizes {
  int64_t length = 0;  // tokens of a sequence; any length will do
  int64_t micro_batch = 1;
};
std::unique_ptr<LocalDecoder> open_local_decoder(const FoundModel& found,
                                                 const LocalSizes& sizes);

}  // namespace canzona
