// Sides of what one rank computes on, after all cuts.
//
//   const DecoderSizes sizes = decoder_sizes(config, parallel);
//   sizes.qkv();   // columns of this rank's q, k, v of a token
#pragma once

#include <algorithm>
#include <cstdint>

#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"

namespace canzona {

struct DecoderSizes {
  int64_t length = 0;
  int64_t micro_batch = 0;
  int64_t hidden = 0;
  int64_t groups = 0;     // key/value heads
  int64_t per_group = 0;  // query heads of each
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;       // rows of the embedding and of the head
  int64_t head_chunk = 0;  // tokens whose logits are there at once

  int64_t tokens() const { return length * micro_batch; }
  int64_t heads() const { return groups * per_group; }
  int64_t width() const { return heads() * head_dim; }
  int64_t group() const { return (per_group + 2) * head_dim; }
  int64_t qkv() const { return groups * group(); }
  // Gradients of the logits wait for backward where they are all there.
  bool keeps_logits() const { return head_chunk == tokens(); }
};

// UsageError names what tp does not divide.
DecoderSizes decoder_sizes(const DecoderConfig& config,
                           const Parallel& parallel);

}  // namespace canzona
