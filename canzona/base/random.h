// Pseudo-random numbers that are the same on every machine. Element i of the
// stream `seed` depends on seed and i alone, so any part of a stream can be
// generated anywhere, in any order.
//
//   float w = uniform_at(seed, i);   // in [-1, 1), exact in fp32
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace canzona {

inline uint64_t bits_at(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns a multiple of 2^-23.
inline float uniform_at(uint64_t seed, uint64_t i) {
  const auto upper = static_cast<int64_t>(bits_at(seed, i) >> 40);
  return static_cast<float>(upper - (int64_t{1} << 23)) * 0x1p-23F;
}

// Returns a number of mean 0 and variance 1, made from two elements of the
// stream.
inline double normal_at(uint64_t seed, uint64_t i) {
  const double a = (static_cast<double>(uniform_at(seed, 2 * i)) + 1) / 2;
  const double b = (static_cast<double>(uniform_at(seed, 2 * i + 1)) + 1) / 2;
  return std::sqrt(-2 * std::log1p(-a)) * std::cos(2 * std::numbers::pi * b);
}

}  // namespace canzona
