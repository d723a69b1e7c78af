// Decides which tensor of a class goes to which home. Tensors of a class are
// alike, so this changes no load, only the bytes of each bucket that a home
// keeps.
//
// Every home's demand for a class is spread over the buckets in proportion to
// their supply. Then overfull places are repaired by swapping tensors of one
// class between homes or, as a last resort, by moving small tensors elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace canzona::plan {

struct Instance {
  int32_t tensor = 0;
  int32_t item_class = 0;
  int64_t elements = 0;
  int64_t load = 0;  // over a period
};

struct InstanceBucket {
  std::vector<Instance> instances;
  int64_t cap = 0;            // elements that one home may keep
  int64_t reachable_cap = 0;  // used if `cap` turns out to be impossible
};

// demands[c]: (home, how many of class c it takes), homes ascending.
struct Demand {
  int32_t home = 0;
  int32_t count = 0;
};

struct Placement {
  std::vector<std::vector<int32_t>> home;  // per bucket and instance
  // Homes that did not get what they asked for, because the byte budget
  // overruled the demands.
  std::vector<bool> changed;
};

// `loads` has the load over a period of each home of the buffer.
Placement place_instances(const std::vector<InstanceBucket>& buckets,
                          const std::vector<std::vector<Demand>>& demands,
                          const std::vector<int64_t>& loads);

// A last search on single tensors within the byte budgets: where the byte
// budgets overruled the bundles, tensors are moved or swapped between ranks as
// long as the largest load falls.

// A tensor of one matrix, assigned to a rank.
struct DealtTensor {
  int64_t load = 0;
  int64_t elements = 0;
  size_t bucket = 0;
  int32_t zone = -1;  // ranks that may own it; -1: all
  size_t rank = 0;
};

struct DealtStage {
  std::vector<DealtTensor> tensors;
  std::vector<int64_t> caps;   // elements per bucket that one home may keep
  std::vector<int32_t> zones;  // per rank
  std::vector<int32_t> homes;  // per rank
};

// Changes the ranks of `stage.tensors`; no home exceeds the larger of its cap
// and what it already keeps. `budget` limits the number of pairs tried.
void swap_tensors(DealtStage& stage, int64_t budget);

}  // namespace canzona::plan
