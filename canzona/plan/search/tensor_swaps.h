// A last search on the tensors themselves, budgets on bytes kept: where bytes
// overruled the bundles, single tensors are moved or swapped between ranks as
// long as the largest load falls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace canzona {

// A tensor that is one matrix, at a rank.
struct DealtTensor {
  int64_t load = 0;
  int64_t elements = 0;
  size_t bucket = 0;
  int32_t block = -1;  // ranks that may own it; -1: all
  size_t rank = 0;
};

struct DealtStage {
  std::vector<DealtTensor> tensors;
  std::vector<int64_t> caps;    // elements per bucket that one home may keep
  std::vector<int32_t> blocks;  // per rank
  std::vector<int32_t> homes;   // per rank
};

// Changes the ranks of `stage.tensors`; no home exceeds the larger of its cap
// and what it keeps already. `budget` counts pairs looked at.
void swap_tensors(DealtStage& stage, int64_t budget);

}  // namespace canzona
