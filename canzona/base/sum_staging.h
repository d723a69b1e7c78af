// The size of the memory in which a group of ranks stages sums. The
// communicator reserves it; the planner counts it.
//
//   const int64_t bytes = sum_staging_bytes(num_ranks);
//
// Pieces travel in segments, in two halves: one is on the wire while the other
// is added. Each half has, for every rank, a slot for the piece that it sends
// and a slot for a converted piece that goes to it; the sum and its tree need a
// few more. All slots together never exceed a fixed size: with more ranks,
// segments get shorter.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace canzona {

inline constexpr int64_t kMostSumStaging = int64_t{64} << 20;
inline constexpr int64_t kUsualSumSegment = 512 << 10;
inline constexpr int64_t kSumSlotAlignment = 64;

constexpr int64_t num_sum_slots(int num_ranks) {
  return 4 * int64_t{num_ranks} +
         std::bit_width(static_cast<unsigned>(num_ranks)) + 1;
}

// Returns half a segment, or as much as the fixed size leaves for a slot; at
// least one element of any type fits.
constexpr int64_t sum_slot_bytes(int num_ranks, int64_t segment_bytes) {
  const auto rounded = [](int64_t bytes) {
    return bytes / kSumSlotAlignment * kSumSlotAlignment;
  };
  const int64_t most = rounded(kMostSumStaging / num_sum_slots(num_ranks));
  const int64_t half = rounded(segment_bytes / 2 + kSumSlotAlignment - 1);
  return std::max(std::min(half, most), kSumSlotAlignment);
}

constexpr int64_t sum_staging_bytes(int num_ranks,
                                    int64_t segment_bytes = kUsualSumSegment) {
  return num_sum_slots(num_ranks) * sum_slot_bytes(num_ranks, segment_bytes);
}

}  // namespace canzona
