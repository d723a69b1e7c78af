// The smallest makespan by exhaustion, for tests: up to four ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace canzona::plan {

// The smallest largest load of dealing `sizes` to ranks, by subsets: for every
// set of items, what one, two, … ranks need for it.
inline int64_t optimum_by_subsets(const std::vector<int64_t>& sizes,
                                  int32_t ranks) {
  const size_t sets = size_t{1} << sizes.size();
  std::vector<int64_t> one(sets, 0);
  for (size_t set = 1; set < sets; ++set) {
    size_t i = 0;
    while (!(set >> i & 1)) ++i;
    one[set] = one[set & (set - 1)] + sizes[i];
  }
  auto split = [&](const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                   size_t set) {
    int64_t best = std::max(a[0], b[set]);
    for (size_t part = set; part > 0; part = (part - 1) & set) {
      best = std::min(best, std::max(a[part], b[set ^ part]));
    }
    return best;
  };
  if (ranks == 1) return one.back();
  if (ranks == 2) return split(one, one, sets - 1);
  std::vector<int64_t> two(sets, 0);
  for (size_t set = 1; set < sets; ++set) two[set] = split(one, one, set);
  return split(ranks == 3 ? one : two, two, sets - 1);
}

}  // namespace canzona::plan
