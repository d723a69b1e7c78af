// Element-wise stages. Each is one pass over memory; each element is computed
// by the same operations in the same order wherever it is, alone or fused into
// a product, so that cutting or fusing never changes bits. Products and sums
// are rounded one by one (no fused multiply-add), scalars once, to the type of
// the data.
#pragma once

#include "canzona/linalg/matrix.h"

namespace canzona {

// Flat runs of `count` elements of one type; null if a stage does not use one.
struct Run {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;
};
struct ConstRun {
  const std::byte* data = nullptr;
  DType dtype = DType::kFp32;
  ConstRun() = default;
  ConstRun(const std::byte* d, DType t) : data(d), dtype(t) {}
  ConstRun(Run run) : data(run.data), dtype(run.dtype) {}  // NOLINT: implicit
};

template <class Real>
Run run_of(Real* data) {
  return {reinterpret_cast<std::byte*>(data), DTypeOf<Real>::value};
}
template <class Real>
ConstRun run_of(const Real* data) {
  return {reinterpret_cast<const std::byte*>(data), DTypeOf<Real>::value};
}

// Returns the first element, typed; null stays null.
template <class Real>
const Real* elements(ConstRun run) {
  CANZONA_CHECK(run.data == nullptr || run.dtype == DTypeOf<Real>::value,
                "a run of ", to_string(run.dtype));
  return reinterpret_cast<const Real*>(run.data);
}
template <class Real>
Real* elements(Run run) {
  return const_cast<Real*>(elements<Real>(ConstRun(run)));
}

// Momentum and the update made from it:
//   b = keep·b + add·g;  u = from_grad·g + from_momentum·b
struct Blend {
  double keep = 0;
  double add = 1;
  double from_grad = 0;
  double from_momentum = 1;
};

// p = (p·keep_before - step·u)·keep_after; where p·u < 0, a cautious one uses 1
// for keep_before. Neither Adam in one pass nor a product of 16-bit operands
// into weights supports cautious.
struct Apply {
  double keep_before = 1;
  double step = 0;
  double keep_after = 1;
  bool cautious = false;
};

// First and second moments and their quotient:
//   m = m_keep·m + m_add·g
//   v = v_keep·v + (v_add·g)·g
//   u = (from_moment·m + from_grad·g) / (sqrt(v)·root_scale + epsilon)
struct AdamCoefficients {
  double m_keep = 0, m_add = 1;
  double v_keep = 0, v_add = 1;
  double from_moment = 1, from_grad = 0;
  double root_scale = 1;
  double epsilon = 0;
};

}  // namespace canzona
