// For tests of largest_bits and sum_of_squares: numbers of every magnitude, and
// the right results by integer arithmetic.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

__extension__ using UInt128 = unsigned __int128;

inline uint32_t oracle_largest(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float x : values)
    largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffU);
  return largest;
}

// x = mantissa·2^power, so its square is mantissa²·2^(2·power).
inline WideSum oracle_squares(std::span<const float> values, int exponent) {
  UInt128 sum = 0;
  for (const float x : values) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const int field = static_cast<int>(bits >> 23 & 0xff);
    const uint64_t fraction = bits & 0x7fffffU;
    const uint64_t mantissa = field == 0 ? fraction : fraction | 0x800000U;
    const int power = 2 * (std::max(field, 1) - 150 + exponent);
    const UInt128 square = UInt128{mantissa} * mantissa;
    if (power >= 0)
      sum += square << power;
    else if (power > -64)
      sum += square >> -power;
  }
  return {static_cast<uint64_t>(sum), static_cast<uint64_t>(sum >> 64)};
}

// Makes numbers of any sign and magnitude whose bits are at most `most`,
// including zeros and denormals. Half are near the largest, which is the first.
inline std::vector<float> numbers_up_to(float most, int64_t count,
                                        uint32_t seed) {
  std::mt19937 generator(seed);
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  const auto limit = std::bit_cast<uint32_t>(most);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t kind = random() % 16;
    uint32_t magnitude = random() % (limit + 1);
    if (kind > 8) magnitude = limit - random() % std::min(limit, 1U << 25);
    if (kind == 0 || i == 0) magnitude = i == 0 ? limit : 0;
    values.push_back(std::bit_cast<float>(magnitude | (random() & 1U) << 31));
  }
  return values;
}

// The largest number that sum_of_squares accepts.
inline float most_for(int exponent) {
  return std::min(std::ldexp(1.0F, 31 - exponent),
                  std::numeric_limits<float>::max());
}

// Runs that cut the values at uneven positions, including empty ones.
inline std::vector<Engine::Stretch> cut_runs(const float* values, int64_t count,
                                             uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Engine::Stretch> runs = {{}};
  for (int64_t begin = 0; begin < count;) {
    const auto size =
        std::min<int64_t>(static_cast<int64_t>(random() % 700), count - begin);
    runs.push_back({run_of(values + begin), size});
    begin += size;
  }
  return runs;
}

}  // namespace canzona::linalg
