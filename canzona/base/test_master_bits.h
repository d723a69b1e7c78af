// Checks an fp32 number as a master by definitions that share no code with
// base/master_bits.h.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "canzona/base/master_bits.h"

namespace canzona {

inline float number_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float number_of_weight(uint16_t bits) {
  return number_of(uint32_t{bits} << 16);
}

// True if no weight is nearer to the master, and none as near is larger.
// Distances of fp32 numbers are exact in fp64; beyond the largest weight lies
// infinity, which stands for 2^128.
inline bool is_nearest_and_largest(uint32_t master, uint16_t weight) {
  const auto size = [](uint16_t w) {
    const auto bits = static_cast<uint16_t>(w & 0x7FFFU);
    return bits == 0x7F80 ? 0x1p128 : double{number_of_weight(bits)};
  };
  const double wanted = std::fabs(double{number_of(master)});
  const double distance = std::fabs(size(weight) - wanted);
  if ((weight >> 15) != (master >> 31)) return false;
  if ((weight & 0x7FFFU) > 0 &&
      std::fabs(size(static_cast<uint16_t>(weight - 1)) - wanted) < distance)
    return false;
  return (weight & 0x7FFFU) == 0x7F80 ||
         std::fabs(size(static_cast<uint16_t>(weight + 1)) - wanted) > distance;
}

inline bool is_right_master(uint32_t master) {
  const uint16_t weight = weight_of_master(master);
  const uint32_t back = master_of(weight, remainder_of_master(master));
  const float number = number_of(master);
  if (std::isnan(number))
    return std::isnan(number_of_weight(weight)) &&
           std::isnan(number_of(back)) && weight_of_master(back) == weight;
  if (std::isinf(number)) return back == master && weight == master >> 16;
  return back == master && is_nearest_and_largest(master, weight);
}

}  // namespace canzona
