// Sums of squares as integers, so that no order and no cut can change them.
//
//   const uint32_t largest = engine.largest_bits(runs);
//   const int exponent = …;   // brings the largest to at most 2^31
//   const WideSum sum = engine.sum_of_squares(runs, exponent);
#pragma once

#include <cstdint>

namespace canzona {

// An unsigned 128-bit integer; sums are modulo 2^128.
struct WideSum {
  uint64_t low = 0;
  uint64_t high = 0;

  void add(const WideSum& other) {
    low += other.low;
    high += other.high + (low < other.low ? 1 : 0);
  }
  bool operator==(const WideSum&) const = default;
};

// sum_of_squares does not underflow within ±kMostExponent.
inline constexpr int kMostExponent = 256;

// Throws InternalError unless the exponent is within bounds and |x|·2^exponent
// at most 2^31, where |x| has the given bits.
void check_squares_fit(uint32_t largest_bits, int exponent);

}  // namespace canzona
