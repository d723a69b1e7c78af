// Chooses between a library's functions for fp32 and for fp64.
//
//   of_type<Real>(spotrf_, dpotrf_)("U", &n, a, &stride, &info, 1);
#pragma once

namespace canzona::linalg {

template <class Real, class Fp32, class Fp64>
constexpr auto of_type(Fp32* fp32, Fp64* fp64) {
  if constexpr (sizeof(Real) == sizeof(float))
    return fp32;
  else
    return fp64;
}

}  // namespace canzona::linalg
