// For tests: pieces of several ranks, and their sum by a second implementation
// of the tree, level by level, that shares no code with tree_sum.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/base/rooms.h"

namespace canzona::comm {

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}
template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

// Returns numbers of very different magnitude, so that another order gives
// other bits.
inline float test_value(int rank, int64_t i) {
  const auto seed = static_cast<uint64_t>(rank) + 17;
  const auto place = static_cast<uint64_t>(i);
  const auto power = static_cast<int>(bits_at(seed + 99, place) % 24) - 12;
  return std::ldexp(uniform_at(seed, place), power);
}

inline std::vector<float> test_piece(int rank, int64_t count) {
  std::vector<float> piece;
  for (int64_t i = 0; i < count; ++i) piece.push_back(test_value(rank, i));
  return piece;
}

// Rounds to bf16 by arithmetic, to the nearest multiple of the last place.
inline float oracle_bf16(float value) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(fraction * 256), exponent - 8));
}

inline float oracle_sum(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      const bool odd = i + 1 == level.size();
      next.push_back(odd ? level[i] : level[i] + level[i + 1]);
    }
    level = next;
  }
  return level.front();
}

// Element i of the sum over ranks of test_value(rank, i).
inline float oracle_at(int num_ranks, int64_t i, bool bf16 = false) {
  std::vector<float> values;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const float value = test_value(rank, i);
    values.push_back(bf16 ? oracle_bf16(value) : value);
  }
  return oracle_sum(values);
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace canzona::comm
