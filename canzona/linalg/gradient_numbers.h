// GradientNumbers are what a step knows of its gradients, in an engine's
// memory, so that a device can go on without this process: the largest |g|,
// whether all are finite, the norm, and the factor that clips it.
// Engine::find_largest and what follows it fill this in; the functions below
// say how, once, for all who do.
//
//   numbers->largest                    // of this rank, then of all
//   int exponent = squares_exponent(largest);
//   double norm = norm_of_squares(sum, exponent);
//
// Pure; any thread may call.
#pragma once

#ifdef __CUDACC__
#define CANZONA_EVERYWHERE __host__ __device__
#else
#define CANZONA_EVERYWHERE
#endif

#include <bit>
#include <cmath>
#include <cstdint>

#include "canzona/linalg/wide_sum.h"

namespace canzona {

// The bits of |g| as an integer are at least this if g is not finite.
inline constexpr uint32_t kInfinityBits = 0x7F800000;

struct GradientNumbers {
  // Bits of the largest |g|; where one is not finite at least kInfinityBits, or
  // a code above all bits that says where.
  int64_t largest = 0;
  uint64_t squares[2] = {0, 0};  // Σ trunc((g·2^exponent)²), the lower first
  double norm = 0;
  double factor = 1;      // by which gradients are multiplied
  int32_t is_finite = 1;  // what find_largest has seen
  int32_t is_whole = 1;   // the factor is 1
  int32_t skip = 0;       // 1: the step leaves everything as it is
  int32_t unused = 0;
};

// If ranks reduce numbers by themselves, each contributes to a maximum:
// [0] its `largest`, [1] a number that all are to have in common, [2] the
// negative of that. If they do not, `largest` becomes this.
inline constexpr int64_t kUnlikeCode = INT64_MAX;

CANZONA_EVERYWHERE inline void judge_by_shared(GradientNumbers& numbers,
                                               const int64_t* shared,
                                               int64_t least) {
  numbers.largest = shared[0];
  if (shared[1] != -shared[2]) numbers.largest = kUnlikeCode;
  numbers.skip = numbers.largest >= least ? 1 : 0;
}

// A number of 128 bits as four limbs, each in a word of its own, and back.
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

// The largest magnitude becomes one below 2^31, so that a square fits 62 bits
// and 2^64 of them 126. Requires a finite number above 0.
inline int squares_exponent(uint32_t largest_bits) {
  return 30 - std::ilogb(std::bit_cast<float>(largest_bits));
}

inline double norm_of_squares(const WideSum& sum, int exponent) {
  const double squares = std::ldexp(static_cast<double>(sum.high), 64) +
                         static_cast<double>(sum.low);
  return std::ldexp(std::sqrt(squares), -exponent);
}

// 1 if nothing is to be clipped; a limit of 0 clips nothing.
inline double clip_factor(double norm, double limit) {
  constexpr double kAboveZero = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + kAboveZero) : 1;
}

}  // namespace canzona

#undef CANZONA_EVERYWHERE
