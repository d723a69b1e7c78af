// The numbers of the decoder that `canzona train` trains: a Qwen3-style
// transformer, or, without norms of queries and keys, a Llama-style one. Shapes
// are those of shapes/architecture.h; the numbers added here do not change any
// tensor.
//
//   DecoderConfig config{.architecture = tiny, .length = 64, .micro_batch = 2};
//   Model shapes = decoder_shapes(config, "tiny");
#pragma once

#include <cstdint>
#include <string>

#include "canzona/shapes/architecture.h"

namespace canzona {

struct DecoderConfig {
  Architecture architecture = {};
  int64_t length = 0;       // tokens per sequence
  int64_t context = 0;      // tokens that attention reaches; 0: length
  int64_t micro_batch = 1;  // sequences per micro-batch
  double norm_epsilon = 1e-6;
  double rope_base = 10000;
  int64_t experts_per_token = 2;  // in layers with experts
  // The coefficient of the loss that balances tokens over experts. It is
  // computed for each sequence separately, so that it does not depend on how
  // sequences are distributed over ranks.
  double balance_coefficient = 0.01;
  bool recompute = false;  // layers keep only their input
  // Tokens whose logits are in memory at once; 0 chooses by the vocabulary's
  // size.
  int64_t head_chunk = 0;

  int64_t tokens() const { return length * micro_batch; }
  int64_t reach() const { return context > 0 ? context : length; }
};

// UsageError names the number that is out of bounds, or a feature that the
// decoder does not have: latent attention, biases.
void check_decoder(const DecoderConfig& config, const std::string& name);

// The decoder's tensors: q, k, v in one tensor, gate and up in one.
Model decoder_shapes(const DecoderConfig& config, const std::string& name);

}  // namespace canzona
