// The linear relaxation over load patterns: with patterns of load ≤ T, how many
// ranks are needed if ranks could be split into fractions? Solved by column
// generation (Gilmore and Gomory): the basis holds one pattern per size, the
// knapsack prices new ones.
//
//   PatternSolution s = relax_patterns(items, ranks, T);
//   s.status == kFits: fractions x of patterns cover all items on ≤ `ranks`
//   s.status == kTooSmall: proven impossible, in fractions and hence in ranks
#pragma once

#include "canzona/plan/makespan/knapsack.h"

namespace canzona {

struct PatternSolution {
  enum Status { kFits, kTooSmall, kUnknown };
  Status status = kUnknown;
  std::vector<std::vector<int64_t>> patterns;
  std::vector<double> fractions;  // per pattern
};

// Sizes beyond this number are not relaxed.
inline constexpr size_t kMaxPatternSizes = 8;

PatternSolution relax_patterns(std::span<const SizeCount> items, int64_t ranks,
                               int64_t capacity);

}  // namespace canzona
