// e^x of many numbers at once (fp32), or of each by the library (fp64).
//
// fp32: x = n·ln 2 + r with |r| <= ln 2 / 2, and e^r by its series up to r^7,
// whose rest is below 6e-9; the relative error is below 2e-7. Below -87.3,
// where fp32 has no normal numbers, 0; above 88.3 the value there. NaN stays
// NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "canzona/model/ops/lanes.h"

namespace canzona {
namespace {

CANZONA_INLINE inline Vector<float> exp_series(Vector<float> r) {
  Vector<float> p = r * (1.0F / 5040) + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return ((p * r) * r + r) + 1.0F;
}

CANZONA_INLINE inline Vector<float> exp_vector(Vector<float> given) {
  typedef int32_t Integers __attribute__((vector_size(kVectorBytes)));
  constexpr float kLeast = -87.3F;
  constexpr float kMost = 88.3F;
  constexpr float kRound = 0x1.8p23F;  // added, it leaves an integer below
  const Vector<float> zero = {};
  Vector<float> x = given < kLeast ? zero + kLeast : given;
  x = x > kMost ? zero + kMost : x;
  const Vector<float> shifted = x * 0x1.715476p0F + kRound;
  const Vector<float> n = shifted - kRound;
  // ln 2 in two parts: n times the first is exact.
  const Vector<float> r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Integers power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power - 0x4b400000 + 127) << 23;
  Vector<float> scale;
  std::memcpy(&scale, &power, sizeof scale);
  const Vector<float> result = exp_series(r) * scale;
  return given < kLeast ? zero : result;
}

CANZONA_INLINE inline Vector<double> exp_vector(Vector<double> x) {
  for (int64_t i = 0; i < kLanes<double> / kVectors; ++i) x[i] = ::exp(x[i]);
  return x;
}

template <class Real>
CANZONA_INLINE inline Lanes<Real> exp_lanes(const Lanes<Real>& x) {
  return map(x, [](Vector<Real> v) CANZONA_INLINE { return exp_vector(v); });
}

}  // namespace
}  // namespace canzona
