#include "canzona/plan/makespan/bound.h"

#include <algorithm>

#include "canzona/plan/makespan/pattern_lp.h"

namespace canzona {
namespace {

// The k-th largest size, counted from 1; 0 if there are fewer.
int64_t kth_largest(std::span<const SizeCount> items, int64_t k) {
  for (const SizeCount& item : items) {
    if (k <= item.count) return item.size;
    k -= item.count;
  }
  return 0;
}

int64_t largest_load(std::span<const SizeCount> items,
                     const PatternSolution& solution) {
  int64_t load = 0;
  for (const auto& pattern : solution.patterns) {
    load = std::max(load, load_of(items, pattern));
  }
  return load;
}

}  // namespace

int64_t simple_bound(std::span<const SizeCount> items, int64_t ranks) {
  int64_t sum = 0;
  for (const SizeCount& item : items) sum += item.size * item.count;
  const int64_t mean = (sum + ranks - 1) / ranks;
  // With more than R items two of the R+1 largest meet on one rank.
  int64_t pair = kth_largest(items, ranks + 1);
  if (pair > 0) pair += kth_largest(items, ranks);
  return std::max({mean, kth_largest(items, 1), pair});
}

int64_t lower_bound(std::span<const SizeCount> items, int64_t ranks,
                    int64_t upper) {
  int64_t low = simple_bound(items, ranks);
  if (items.size() > kMaxPatternSizes || upper <= low) return low;
  PatternSolution at_low = relax_patterns(items, ranks, low);
  if (at_low.status != PatternSolution::kTooSmall) return low;
  int64_t high = upper;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    PatternSolution solution = relax_patterns(items, ranks, middle);
    if (solution.status == PatternSolution::kTooSmall) {
      low = middle;
    } else if (solution.status == PatternSolution::kFits) {
      high = std::min(middle, std::max(largest_load(items, solution), low + 1));
    } else {
      return low + 1;
    }
  }
  return high;
}

}  // namespace canzona
