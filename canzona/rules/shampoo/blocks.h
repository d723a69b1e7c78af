// Which sizes Shampoo cuts into blocks: those of a tensor whose small
// neighbouring sizes are merged.
//
//   merge_sizes({64, 3, 7, 7}, {.max_dim = 1024, .merge = 2})   64 147
#pragma once

#include <cstdint>
#include <span>

#include "canzona/rules/blocks.h"

namespace canzona {

struct BlockingOptions {
  int64_t max_dim = 1024;
  int merge = 2;  // how many axes to merge down to; 0 leaves them as they are
};

// Drops sizes of one, then, from the last axis on, multiplies neighbours while
// more than `merge` axes remain and the product is at most max_dim. A size of
// zero gives one axis of zero. At least one axis remains.
AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options);

}  // namespace canzona
