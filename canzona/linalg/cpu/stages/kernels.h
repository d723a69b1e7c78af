// The loops. Included once per instruction set by a file that names its table;
// everything here has internal linkage, so that the linker cannot substitute a
// copy compiled for a newer CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "canzona/base/master_bits.h"
#include "canzona/linalg/cpu/stages/table.h"

// A run may be its own output, but never partly overlaps another.
#define CANZONA_INDEPENDENT _Pragma("GCC ivdep")

namespace canzona::linalg {
namespace {

// Coefficients are copied into locals first: otherwise the compiler would have
// to assume that a store changes them, and would not vectorize.

template <class Real, bool kL2, bool kOut>
void momentum_loop(const typename StageKernels<Real>::Momentum& given,
                   int64_t count) {
  const auto a = given;
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    Real g = a.grad[i];
    if constexpr (kL2) g = g + a.l2 * a.weights[i];
    const Real b = a.keep * a.momentum[i] + a.add * g;
    a.momentum[i] = b;
    if constexpr (kOut) a.out[i] = a.from_grad * g + a.from_momentum * b;
  }
}

// Without momentum the gradient is passed through.
template <class Real, bool kL2>
void hand_on_loop(const typename StageKernels<Real>::Momentum& given,
                  int64_t count) {
  const auto a = given;
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    Real g = a.grad[i];
    if constexpr (kL2) g = g + a.l2 * a.weights[i];
    a.out[i] = g;
  }
}

template <class Real>
void momentum_kernel(const typename StageKernels<Real>::Momentum& a,
                     int64_t count) {
  const bool l2 = a.l2 != 0;
  if (a.momentum == nullptr)
    return l2 ? hand_on_loop<Real, true>(a, count)
              : hand_on_loop<Real, false>(a, count);
  if (a.out == nullptr)
    return l2 ? momentum_loop<Real, true, false>(a, count)
              : momentum_loop<Real, false, false>(a, count);
  return l2 ? momentum_loop<Real, true, true>(a, count)
            : momentum_loop<Real, false, true>(a, count);
}

template <class Real>
void apply_kernel(Real* weights, const Real* update, Real keep_before,
                  Real step, Real keep_after, int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i)
    weights[i] = (weights[i] * keep_before - step * update[i]) * keep_after;
}

template <class Real>
void apply_cautiously_kernel(Real* weights, const Real* update,
                             Real keep_before, Real step, Real keep_after,
                             int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const Real p = weights[i];
    const Real u = update[i];
    const Real keep = p * u < 0 ? Real{1} : keep_before;
    weights[i] = (p * keep - step * u) * keep_after;
  }
}

template <class Real, bool kMoment, bool kApply>
void adam_loop(const typename StageKernels<Real>::Adam& given, int64_t count) {
  const auto a = given;
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const Real g = a.grad[i];
    Real top = a.from_grad * g;
    if constexpr (kMoment) {
      const Real m = a.m_keep * a.m[i] + a.m_add * g;
      a.m[i] = m;
      top = a.from_moment * m + top;
    }
    const Real v = a.v_keep * a.v[i] + (a.v_add * g) * g;
    a.v[i] = v;
    const Real u = top / (std::sqrt(v) * a.root_scale + a.epsilon);
    if constexpr (kApply) {
      const Real p = a.weights[i];
      a.weights[i] = (p * a.keep_before - a.step * u) * a.keep_after;
    } else {
      a.out[i] = u;
    }
  }
}

template <class Real>
void adam_kernel(const typename StageKernels<Real>::Adam& a, int64_t count) {
  const bool applies = a.weights != nullptr;
  if (a.m == nullptr)
    return applies ? adam_loop<Real, false, true>(a, count)
                   : adam_loop<Real, false, false>(a, count);
  return applies ? adam_loop<Real, true, true>(a, count)
                 : adam_loop<Real, true, false>(a, count);
}

template <class Real>
void axpby_kernel(Real* y, Real alpha, const Real* x, Real beta,
                  int64_t count) {
  if (beta == 0) {
    CANZONA_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) y[i] = alpha * x[i];
    return;
  }
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) y[i] = alpha * x[i] + beta * y[i];
}

// Infinities and NaNs have all exponent bits set. They are searched for in
// blocks, so that a bad value near the front ends the search early.
template <class Real>
bool all_finite_kernel(const Real* x, int64_t count) {
  using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
  constexpr Bits kExponent =
      sizeof(Real) == 4 ? Bits{0x7f800000U} : static_cast<Bits>(0x7ffULL << 52);
  constexpr int64_t kStretch = 4096;
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const int64_t end = begin + kStretch < count ? begin + kStretch : count;
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, x + i, sizeof bits);
      found |= (bits & kExponent) == kExponent ? Bits{1} : Bits{0};
    }
    if (found != 0) return false;
  }
  return true;
}

// Rounds to nearest, ties to even; a NaN stays a NaN.
void round_to_bf16_kernel(uint16_t* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    to[i] = static_cast<uint16_t>(is_nan ? quiet : rounded);
  }
}

void round_weights_kernel(uint16_t* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    to[i] = weight_of_master(bits);
  }
}

void split_masters_kernel(uint16_t* weights, uint16_t* remainders,
                          const float* from, int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    weights[i] = weight_of_master(bits);
    remainders[i] = remainder_of_master(bits);
  }
}

void join_masters_kernel(float* to, const uint16_t* weights,
                         const uint16_t* remainders, int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = master_of(weights[i], remainders[i]);
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void widen_bf16_kernel(float* to, const uint16_t* from, int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t{from[i]} << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void add_kernel(float* sum, const float* a, const float* b, int64_t count) {
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

// Magnitudes are below 2^31, and not every instruction set can compare unsigned
// numbers.
uint32_t largest_bits_kernel(const float* x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return static_cast<uint32_t>(largest);
}

uint32_t scale_and_look_kernel(float* x, float factor, int64_t count) {
  int32_t largest = 0;
  CANZONA_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = factor * x[i];
    x[i] = scaled;
    int32_t bits;
    std::memcpy(&bits, &scaled, sizeof bits);
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return static_cast<uint32_t>(largest);
}

// A scaled number has 24 bits and its square 48, so both are exact.
SplitSum sum_squares_kernel(const float* x, double scale, int64_t count) {
  uint64_t low = 0;
  uint64_t high = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double scaled = static_cast<double>(x[i]) * scale;
    const auto square =
        static_cast<uint64_t>(static_cast<int64_t>(scaled * scaled));
    low += square & 0xffffffffU;
    high += square >> 32;
  }
  return {low, high};
}

template <class Real>
constexpr StageKernels<Real> stage_kernels() {
  return {
      momentum_kernel<Real>, apply_kernel<Real>, apply_cautiously_kernel<Real>,
      adam_kernel<Real>,     axpby_kernel<Real>, all_finite_kernel<Real>};
}

constexpr StageTable make_stage_table(std::string_view name) {
  return {name,
          stage_kernels<float>(),
          stage_kernels<double>(),
          round_to_bf16_kernel,
          round_weights_kernel,
          split_masters_kernel,
          join_masters_kernel,
          widen_bf16_kernel,
          add_kernel,
          largest_bits_kernel,
          scale_and_look_kernel,
          sum_squares_kernel};
}

}  // namespace
}  // namespace canzona::linalg
