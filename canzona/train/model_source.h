// Models with their weights: finding one in a folder or a checkpoint, and
// running one in the memory of one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/hf_folder.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/weight_source.h"
#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/tensor.h"
#include "canzona/train/config.h"
#include "canzona/train/settings.h"

namespace canzona::train {

// A model with all its weights in the memory of one process, for sampling,
// evaluation and comparisons. It only runs forward.
//
//   const auto source = [&](const Tensor& tensor, std::span<float> whole) {…};
//   LocalDecoder model(config, "tiny", source);
//   double loss = model.loss(sequences);
//   model.logits(tokens, [&](int64_t first, auto rows) { … });
//
// Micro-batches have config.micro_batch sequences of config.length tokens;
// shorter input is padded at its end, where no earlier token sees it. Needs
// memory for the weights and decoder_memory() with recomputation. One thread at
// a time.

// Makes the decoder that a configuration describes.
inline DecoderConfig decoder_of(const TrainConfig& config) {
  const auto& m = config.model;
  Architecture architecture{.layers = m.layers,
                            .hidden = m.hidden,
                            .ffn = m.ffn,
                            .vocab = m.vocab,
                            .heads = m.heads,
                            .kv_heads = m.kv_heads,
                            .head_dim = m.head_dim,
                            .tied = m.tied,
                            .qk_norm = m.qk_norm};
  if (m.experts > 0)
    architecture.experts = {
        .count = m.experts, .ffn = m.expert_ffn, .shared = m.shared_experts};
  return {.architecture = architecture,
          .length = m.length,
          .micro_batch = config.batch.micro,
          .norm_epsilon = m.norm_epsilon,
          .rope_base = m.rope_base,
          .experts_per_token = m.experts_per_token,
          .balance_coefficient = m.balance_coefficient,
          .recompute = m.recompute == "layer" ? Recompute::kLayer
                       : m.recompute == "mlp" ? Recompute::kMlp
                                              : Recompute::kOff,
          .plain_attention = config.attention == "plain"};
}

// Fills in a tensor of the model: whole, row-major, as without tensor
// parallelism.
using TensorSource =
    std::function<void(const Tensor& tensor, std::span<float> whole)>;

class LocalDecoder {
 public:
  // UsageError names what the decoder does not support.
  LocalDecoder(const DecoderConfig& config, const std::string& name,
               const TensorSource& source);

  const DecoderConfig& config() const { return config_; }
  const Model& shapes() const { return shapes_; }
  // The weights of a tensor of shapes(), by number.
  std::span<const float> weights(int32_t tensor) const;
  // All weights, for callers that compute with them directly.
  Weights<float>& parameters() { return weights_; }
  // The engine, for callers that compute with it directly.
  Engine& engine() { return *engine_; }

  // Takes micro_batch x (length + 1) tokens, of which the first `counted`
  // sequences count (-1: all), and returns the mean loss over their tokens.
  // Throws UsageError for tokens outside the vocabulary.
  double loss(std::span<const int32_t> sequences, int64_t counted = -1);
  // Takes micro_batch x length tokens. `use` gets the number of a token and a
  // row of the vocabulary for it and each following token; all tokens in order.
  void logits(std::span<const int32_t> tokens, const UseLogits<float>& use);

 private:
  class Held : public Weights<float> {
   public:
    Held(const Model& shapes, const TensorSource& source);
    void wait(int32_t) override {}
    void release(int32_t) override {}
    const float* parameter(int32_t tensor) override;
    float* gradient(int32_t tensor) override;
    void ready(int32_t, bool) override {}
    std::span<const float> whole(int32_t tensor) const;

   private:
    std::vector<std::vector<float>> tensors_;
  };

  void check_tokens(std::span<const int32_t> tokens, int64_t count) const;

  DecoderConfig config_;
  Model shapes_;
  std::unique_ptr<Engine> engine_;
  Held weights_;
  Decoder<float> decoder_;
  std::vector<int32_t> sequences_;  // tokens, with room for a target
};

// Computes the loss of a whole model over many sequences as the evaluation of a
// run does: micro-batch by micro-batch, added in order.
//
//   const auto read = [&](int64_t n, auto to) { batches.held_out(n, to); };
//   double loss = mean_loss(model, batches.num_held_out(), read,
//                           [](int64_t done) { … });

// Fills in length + 1 tokens.
using ReadSequence = std::function<void(int64_t number, std::span<int32_t> to)>;

// Averages over sequences 0 … count − 1, at least one. `done` gets the number
// done so far.
double mean_loss(LocalDecoder& model, int64_t count, const ReadSequence& read,
                 const std::function<void(int64_t)>& done);

// Finds a model with its weights: a Hugging Face folder, a checkpoint, or a
// run's folder (its newest checkpoint that verifies, or its final weights if
// there is none or they are of a later step). `train --init` starts from one;
// sample and eval read it.
//
//   const FoundModel found = find_model("Qwen3-0.6B");
//   auto decoder = open_local_decoder(found, {.length = 256});
//
// To choose among the files of a run, all their bytes are read, unless only its
// settings are wanted; for other folders, only names and shapes are read until
// elements are requested. A folder that cannot be read is refused as HfFolder
// and CheckpointReader do; a path that is none of these, or a model that the
// decoder does not support, is a UsageError.

// The weights that were chosen, and what was skipped.
struct ChosenWeights {
  std::string path;            // "runs/one/ckpt/step_00000100"
  bool is_checkpoint = false;  // otherwise model.safetensors or several files
  // For the user: what is damaged and was skipped, and why.
  std::vector<std::string> notes = {};
};

// How thoroughly bytes are checked before a choice is made.
enum class WeightCheck {
  kFiles,  // small files of checkpoints are valid, the others exist
  kBytes,  // every byte is as it was written
};

// Returns the folder's weights. For a run: those of the newest valid
// checkpoint, or the final ones if they are valid and of a later step. A folder
// that contains no run is itself chosen, whatever it holds. Throws
// CheckpointRefused with a list of what is damaged if there is nothing else.
ChosenWeights choose_weights(const std::string& folder,
                             WeightCheck check = WeightCheck::kBytes);

struct FoundModel {
  std::string path;                     // "runs/one/ckpt/step_00000100"
  bool is_checkpoint = false;           // otherwise a Hugging Face folder
  Settings settings;                    // the architecture, in the form of
                                        // --model
  std::vector<std::string> notes = {};  // as in ChosenWeights
};

FoundModel find_model(const std::string& path,
                      WeightCheck check = WeightCheck::kBytes);

// Returns the folder of a run's checkpoints, or the path itself if it is one;
// "" if there are no checkpoints.
std::string checkpoint_store_in(const std::string& path);

// Returns the configuration of the run that saved a checkpoint.
TrainConfig saved_config(const CheckpointReader& reader);

// False for weights alone, as earlier versions made them of Hugging Face's:
// there is nothing to resume, and no data or batches in the configuration.
bool has_run_state(const CheckpointReader& reader);

// Opens the weights after comparing names and shapes with the model's.
std::shared_ptr<const WeightSource> open_weights(const FoundModel& found,
                                                 const Model& model);

// Returns the weights of config.init; null if it has none. Appends messages for
// the user to `notes`.
std::shared_ptr<const WeightSource> initial_weights(
    const TrainConfig& config, const Model& model,
    std::vector<std::string>& notes);

// Throws CheckpointRefused naming the tensor if a value is not finite, because
// no run can begin with it.
void require_finite(const WeightSource& source, const Tensor& tensor,
                    std::span<const float> values);

// Reads the shard of tp rank `t` and requires its values to be finite. Any
// thread may call.
void read_shard(const WeightSource& source, const Tensor& tensor, int32_t tp,
                int32_t t, std::span<float> shard);

// Loads the whole model into this process.
struct LocalSizes {
  int64_t length = 0;  // tokens of a sequence; any length will do
  int64_t micro_batch = 1;
};
std::unique_ptr<LocalDecoder> open_local_decoder(const FoundModel& found,
                                                 const LocalSizes& sizes);

// Converts checkpoints to Hugging Face folders.
//
//   HfExported done = export_hf(reader, {.folder = "out"});
//
// The folder appears by one rename, complete or not at all. One tensor at a
// time is in memory. One thread at a time.

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

}  // namespace canzona::train
