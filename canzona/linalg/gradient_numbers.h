// GradientNumbers are what a step knows about its gradients, in an engine's
// memory, so that a device can go on without this process: the largest |g|,
// whether all are finite, the norm, and the clipping factor.
// Engine::find_largest and the functions after it fill this in; the functions
// below define how, once for all devices.
//
//   numbers->largest                    // of this rank, then of all
//   int exponent = squares_exponent(largest);
//   double norm = norm_of_squares(sum, exponent);
//
// The functions are pure.
#pragma once

#ifdef __CUDACC__
#define CANZONA_EVERYWHERE __host__ __device__
#else
#define CANZONA_EVERYWHERE
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "canzona/base/check.h"

namespace canzona {

// Sums of squares are integers, so that no order and no cut can change them.
//
//   const uint32_t largest = engine.largest_bits(runs);
//   const int exponent = …;   // brings the largest to at most 2^31
//   const WideSum sum = engine.sum_of_squares(runs, exponent);

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
inline void check_squares_fit(uint32_t largest_bits, int exponent) {
  CANZONA_CHECK(std::abs(exponent) <= kMostExponent, "exponent ", exponent);
  const float most = std::min(std::ldexp(1.0F, 31 - exponent),
                              std::numeric_limits<float>::max());
  CANZONA_CHECK(largest_bits <= std::bit_cast<uint32_t>(most), "a number of ",
                std::bit_cast<float>(largest_bits), " times 2^", exponent,
                " is above 2^31");
}

// The bits of |g| as an integer are at least this if g is not finite.
inline constexpr uint32_t kInfinityBits = 0x7F800000;

struct GradientNumbers {
  // The bits of the largest |g|; if one is not finite, at least kInfinityBits,
  // or a code above all bits that says where.
  int64_t largest = 0;
  uint64_t squares[2] = {0, 0};  // Σ trunc((g·2^exponent)²), lower word first
  double norm = 0;
  double factor = 1;      // that gradients are multiplied by
  int32_t is_finite = 1;  // as seen by find_largest
  int32_t is_whole = 1;   // the factor is 1
  int32_t skip = 0;       // 1: the step leaves everything as it is
  int32_t unused = 0;
};

// If ranks reduce numbers on the device, each contributes to a maximum: [0] its
// `largest`, [1] a number that all must have in common, [2] its negative. If
// they do not agree on it, `largest` becomes this.
inline constexpr int64_t kUnlikeCode = INT64_MAX;

CANZONA_EVERYWHERE inline void judge_by_shared(GradientNumbers& numbers,
                                               const int64_t* shared,
                                               int64_t least) {
  numbers.largest = shared[0];
  if (shared[1] != -shared[2]) numbers.largest = kUnlikeCode;
  numbers.skip = numbers.largest >= least ? 1 : 0;
}

// Splits a 128-bit number into four limbs, each in its own word, and joins
// them.
CANZONA_EVERYWHERE inline void split_into_limbs(int64_t* limbs,
                                                const uint64_t* number) {
  for (int i = 0; i < 4; ++i)
    limbs[i] =
        static_cast<int64_t>(number[i / 2] >> (i % 2 * 32) & 0xFFFFFFFFU);
}
CANZONA_EVERYWHERE inline void join_limbs(uint64_t* number,
                                          const int64_t* limbs) {
  uint64_t carry = 0, words[4] = {};
  for (int i = 0; i < 4; ++i) {
    const uint64_t sum = static_cast<uint64_t>(limbs[i]) + carry;
    words[i] = sum & 0xFFFFFFFFU;
    carry = sum >> 32;
  }
  number[0] = words[0] | words[1] << 32;
  number[1] = words[2] | words[3] << 32;
}

// Returns the exponent that scales the largest magnitude to below 2^31, so that
// a square fits in 62 bits and 2^64 of them in 126. Requires a finite number
// above 0.
inline int squares_exponent(uint32_t largest_bits) {
  return 30 - std::ilogb(std::bit_cast<float>(largest_bits));
}

inline double norm_of_squares(const WideSum& sum, int exponent) {
  const double squares = std::ldexp(static_cast<double>(sum.high), 64) +
                         static_cast<double>(sum.low);
  return std::ldexp(std::sqrt(squares), -exponent);
}

// Returns 1 if nothing must be clipped; a limit of 0 clips nothing.
inline double clip_factor(double norm, double limit) {
  constexpr double kAboveZero = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + kAboveZero) : 1;
}

}  // namespace canzona

#undef CANZONA_EVERYWHERE
