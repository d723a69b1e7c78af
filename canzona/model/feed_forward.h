// The feed-forward block of a layer, dense or with experts, and its memory.
//
//   FeedForward<float> feed(config, shapes, layer, parallel, engine, weights);
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "canzona/model/mlp.h"
#include "canzona/model/parallel.h"

namespace canzona {

struct FeedBytes {
  int64_t saved = 0;    // from forward to backward
  int64_t scratch = 0;  // during a call
};

template <class Real>
FeedBytes feed_bytes(const DecoderConfig& config, const Parallel& parallel,
                     int64_t layer);

}  // namespace canzona
