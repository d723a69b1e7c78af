// Computes how much longer the slowest of many ranks takes than the mean.
//
//   slowest_of(256, 0.02)   // 1.056: of 256 ranks that differ by 2 %
//
// Ranks are assumed to be normally distributed and to wait for the slowest. All
// functions are pure.
#pragma once

#include <cstdint>

namespace canzona {

// Standard deviations relative to the mean: of the time that cards take for the
// same work, which is permanent; and of the lengths of sequences, which are
// drawn anew for every micro-batch.
struct RankSpread {
  double compute = 0;
  double length = 0;
  friend bool operator==(const RankSpread&, const RankSpread&) = default;
};

// Returns the expected maximum of `count` standard normal numbers, by Blom's
// formula.
double expected_largest(int64_t count);

// 1 + spread · expected_largest(count).
double slowest_of(int64_t count, double spread);

}  // namespace canzona
