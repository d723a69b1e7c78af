// The joint search for homes and owners: the best bundles by several starts,
// each improved by exchanges; homes of tensors that hold several matrices; and
// small cases, which are solved optimally.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "canzona/plan/search/bundles.h"

namespace canzona::plan {

// The best bundles are those with the least (objective, largest cost per home,
// largest memory per home).

// A start for the search from the pattern relaxation: first whole multiples of
// the fractional patterns, then ranks filled as full as possible, then the rest
// longest first.

// Deals all items to the empty `bundles`, aiming at loads ≤ `capacity`. Returns
// false, dealing nothing, if the relaxation does not apply: several dimensions,
// zones, or too many sizes.
bool deal_by_patterns(Bundles& bundles, int64_t capacity);

// Returns the distinct loads of all items in the only dimension.
std::vector<int64_t> distinct_loads(const std::vector<ItemClass>& classes);

// Limits of a home: `share` bounds its elements as a multiple of the mean (0:
// unbounded), `memory` the bytes of states of all its tp ranks. With `mixed`,
// bundles from longest-first dealing are preferred to patterns if they are
// nearly as good: patterns put equal items together, which makes bytes hard to
// level.
struct Budgets {
  double share = 0;
  int64_t memory = INT64_MAX;
  bool mixed = false;
};

// `zones` has one entry per rank; home h is ranks [h·tp, (h+1)·tp).
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& zones, int32_t tp,
                       const Budgets& budgets);

// The same for items whose zones are numbers of sets of owners, which may
// overlap (bundles.h), without homes and budgets.
Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps, size_t num_ranks,
                       const OwnerSets& sets);

// Homes of tensors that hold several matrices. Such a tensor goes to one home
// as a whole, but its matrices are dealt to the tp ranks there, so the
// objective is the makespan inside each home, not its total load.

// loads[c]: the loads of the matrices of one tensor of class c.
using MatrixLoads = std::vector<std::vector<std::vector<int64_t>>>;

// Moves and swaps single tensors between the home with the largest makespan and
// others as long as both end below it. `homes` has one bundle per home;
// `budget` limits the number of homes dealt on trial. Returns the largest
// makespan of a home.
int64_t improve_split_homes(Bundles& homes, const MatrixLoads& loads,
                            int32_t tp, int64_t budget);

// Another start: deals all matrices, longest first, to the least loaded rank;
// the first matrix of a tensor decides the home of the others. `homes` must be
// empty.
void deal_split_longest_first(Bundles& homes, const MatrixLoads& loads,
                              int32_t tp);

// Small cases are solved optimally by branch and bound. Items of one tensor
// share a home, and a home keeps at most `cap` elements of a bucket; the
// objective is that of Bundles.

inline constexpr size_t kExactItems = 14;
inline constexpr size_t kExactRanks = 4;

struct ExactItem {
  std::vector<int64_t> load;
  int32_t tensor = 0;  // items with the same number share a home
  int32_t bucket = 0;
  int64_t elements = 0;  // of the tensor's shard, counted once per tensor
  int32_t zone = -1;     // ranks that may own it; -1: all
};

struct ExactCase {
  std::vector<ExactItem> items;
  std::vector<int64_t> steps;
  std::vector<int32_t> zones;  // per rank
  std::vector<int32_t> homes;  // per rank
  std::vector<int64_t> caps;   // per bucket
};

// Returns the rank of each item; nullopt if no assignment respects the caps.
std::optional<std::vector<int32_t>> solve_exactly(const ExactCase& c);

}  // namespace canzona::plan
