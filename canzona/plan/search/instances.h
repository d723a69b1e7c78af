// Decides which tensor of a class goes to which home. Tensors of a class are
// alike, so this changes no load; it decides how many bytes of each bucket a
// home keeps.
//
// Every home's demand of a class is spread over the buckets in proportion to
// their supply, then overfull places are mended by swapping tensors of one
// class between homes, or at last by moving small tensors elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace canzona {

struct Instance {
  int32_t tensor = 0;
  int32_t item_class = 0;
  int64_t elements = 0;
  int64_t load = 0;  // over a period
};

struct InstanceBucket {
  std::vector<Instance> instances;
  int64_t cap = 0;            // elements that one home may keep
  int64_t reachable_cap = 0;  // the same where `cap` turns out impossible
};

// demands[c]: (home, how many of class c it takes), homes ascending.
struct Demand {
  int32_t home = 0;
  int32_t count = 0;
};

struct Placement {
  std::vector<std::vector<int32_t>> home;  // per bucket and instance
  // Homes that got something else than they asked for, because the budget on
  // bytes overruled the demands.
  std::vector<bool> changed;
};

// `loads` has one entry per home of the buffer: all it computes in a period.
Placement place_instances(const std::vector<InstanceBucket>& buckets,
                          const std::vector<std::vector<Demand>>& demands,
                          const std::vector<int64_t>& loads);

// A last search on the tensors themselves, budgets on bytes kept: where bytes
// overruled the bundles, single tensors are moved or swapped between ranks as
// long as the largest load falls.

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
