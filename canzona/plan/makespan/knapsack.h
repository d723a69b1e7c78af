// The bounded knapsack behind the pattern relaxation: which items, at most
// `count` of each and `capacity` in total, have the largest total value?
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "canzona/plan/makespan/sizes.h"

namespace canzona {

// A Pattern is how many of each size one rank takes, and what they are worth.
struct Pattern {
  std::vector<int64_t> counts;
  double value = 0;
};

// Exact, by branch and bound in order of value per size. Sizes of no positive
// value are left out. nullopt if the search exceeds its node limit.
std::optional<Pattern> best_pattern(std::span<const SizeCount> items,
                                    std::span<const double> values,
                                    int64_t capacity);

int64_t load_of(std::span<const SizeCount> items,
                std::span<const int64_t> counts);

}  // namespace canzona
