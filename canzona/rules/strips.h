// Strips: the long side of a matrix, cut so that several ranks can share its
// work. Where the cuts are follows from the side alone, so every rank and every
// plan has the same.
//
//   const int strips = strips_that_fit(25600, 8);              // 8
//   const std::vector<int64_t> at = strip_borders(25600, strips);
//   // strip s is [at[s], at[s + 1])
//
// Pure; any thread may call.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

// Strips are 1, 2, 4 or 8, so that equal shares of them are subtrees of the
// binary tree in which their sums are added.
inline constexpr int kMostStrips = 8;
// Borders lie at multiples of it: whole tiles of every device.
inline constexpr int64_t kStripUnit = 64;

// Returns the borders of `strips` strips of a side: strips + 1 numbers from 0
// to side, the inner ones the multiples of 64 nearest to side·i/strips (of two
// equally near ones the larger). No strip is empty if they fit.
std::vector<int64_t> strip_borders(int64_t side, int strips);

// Returns the largest of 1, 2, 4 and 8 that is not above `wanted` and has
// side >= 64·strips; at least 1.
int strips_that_fit(int64_t side, int wanted);

// Returns the width of the widest of them.
int64_t widest_strip(int64_t side, int strips);

}  // namespace canzona
