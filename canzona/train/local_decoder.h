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
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/tensor.h"
#include "canzona/train/config.h"

namespace canzona {

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
          .recompute = m.recompute};
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

}  // namespace canzona
