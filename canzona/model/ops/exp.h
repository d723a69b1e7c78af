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

CANZONA_INLINE inline Lanes<float> exp_series(Lanes<float> r) {
  Lanes<float> p = broadcast(1.0F / 5040);
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return ((p * r) * r + r) + 1.0F;
}

CANZONA_INLINE inline Lanes<float> exp_lanes(Lanes<float> given) {
  typedef int32_t Integers __attribute__((vector_size(64)));
  constexpr float kLeast = -87.3F;
  constexpr float kMost = 88.3F;
  constexpr float kRound = 0x1.8p23F;  // added, it leaves an integer below
  Lanes<float> x = given < kLeast ? broadcast(kLeast) : given;
  x = x > kMost ? broadcast(kMost) : x;
  const Lanes<float> shifted = x * 0x1.715476p0F + kRound;
  const Lanes<float> n = shifted - kRound;
  // ln 2 in two parts: n times the first is exact.
  const Lanes<float> r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Integers power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power - 0x4b400000 + 127) << 23;
  Lanes<float> scale;
  std::memcpy(&scale, &power, sizeof scale);
  const Lanes<float> result = exp_series(r) * scale;
  return given < kLeast ? Lanes<float>{} : result;
}

CANZONA_INLINE inline Lanes<double> exp_lanes(Lanes<double> x) {
  Lanes<double> result;
  for (int64_t i = 0; i < kLanes<double>; ++i) result[i] = ::exp(x[i]);
  return result;
}

}  // namespace
}  // namespace canzona
