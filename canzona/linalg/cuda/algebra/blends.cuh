// The batch that a load reads: gradients, or their blends with momenta, a few
// adjacent numbers at a time. For the kernels of norms and of the load itself,
// which compute the same blends.
#pragma once

#include <cuda_bf16.h>

#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

constexpr int kGroup = 4;   // adjacent numbers that a thread takes at once
constexpr int kRounds = 4;  // groups in flight together
constexpr int kPerBlock = kSumThreads * kGroup * kRounds;

template <class Real>
struct Coefficients {
  Real keep, add, from_grad, from_momentum;

  __device__ explicit Coefficients(const double* blend)
      : keep(static_cast<Real>(blend[0])),
        add(static_cast<Real>(blend[1])),
        from_grad(static_cast<Real>(blend[2])),
        from_momentum(static_cast<Real>(blend[3])) {}
};

template <class Real>
__device__ Real advance(const Coefficients<Real>& k, Real momentum, Real grad) {
  return add(mul(k.keep, momentum), mul(k.add, grad));
}

// A few adjacent numbers of a matrix, moved in one access where possible.
template <class Real>
struct Group {
  alignas(16) Real at[kGroup];

  __device__ void read(const Real* from, int64_t begin, int64_t end,
                       bool vector) {
    if (vector && begin + kGroup <= end) {
      *reinterpret_cast<Wide<Real>*>(at) =
          *reinterpret_cast<const Wide<Real>*>(from + begin);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      at[i] = begin + i < end ? from[begin + i] : Real{0};
  }
  __device__ void write(Real* to, int64_t begin, int64_t end,
                        bool vector) const {
    if (vector && begin + kGroup <= end) {
      *reinterpret_cast<Wide<Real>*>(to + begin) =
          *reinterpret_cast<const Wide<Real>*>(at);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (begin + i < end) to[begin + i] = at[i];
  }
};

// Finds the numbers of a matrix; offsets leave out the gaps between groups of
// rows. A group has a multiple of kGroup numbers.
template <class Real>
struct Places {
  const Real* grads;
  Real* momenta;
  uint32_t group;
  int64_t grad_skip, momentum_skip;
  bool vector;

  __device__ Places(const BlendSource<Real>& source, int64_t matrix)
      : grads(source.grads[matrix]),
        momenta(source.momenta == nullptr ? nullptr : source.momenta[matrix]),
        group(source.group),
        grad_skip(source.grad_skips == nullptr ? 0 : source.grad_skips[matrix]),
        momentum_skip(source.momentum_skips == nullptr
                          ? 0
                          : source.momentum_skips[matrix]),
        vector(is_wide(grads) && is_wide(momenta) &&
               (grad_skip | momentum_skip) % kGroup == 0) {}

  // Addresses of the matrix's first number, as seen from `place` on.
  __device__ const Real* grad(int64_t place) const {
    return grads + skipped(grad_skip, place);
  }
  __device__ Real* momentum(int64_t place) const {
    return momenta + skipped(momentum_skip, place);
  }

 private:
  __device__ int64_t skipped(int64_t skip, int64_t place) const {
    return skip == 0 ? 0 : static_cast<uint32_t>(place) / group * skip;
  }
};

template <class Real>
__device__ Real blend_of(const BlendSource<Real>& source,
                         const Coefficients<Real>& k, Real momentum,
                         Real grad) {
  const Real value =
      add(mul(k.from_grad, grad), mul(k.from_momentum, momentum));
  if (!source.as_sent) return value;
  return static_cast<Real>(
      __bfloat162float(__float2bfloat16_rn(static_cast<float>(value))));
}

// Replaces gradients by the blends that the second pass computes again.
template <class Real>
__device__ void blend_groups(const BlendSource<Real>& source,
                             const Places<Real>& at,
                             const Group<Real> (&b)[kRounds],
                             Group<Real> (&u)[kRounds]) {
  if (at.momenta == nullptr) return;
  const Coefficients<Real> k(source.blend);
#pragma unroll
  for (int r = 0; r < kRounds; ++r)
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      u[r].at[i] =
          blend_of(source, k, advance(k, b[r].at[i], u[r].at[i]), u[r].at[i]);
}

// Computes the blends but stores no momenta; only the second pass does.
template <class Real>
__device__ void read_blends(const BlendSource<Real>& source,
                            const Places<Real>& at, int64_t begin, int64_t end,
                            Group<Real> (&u)[kRounds]) {
  Group<Real> b[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t place = begin + (r * kSumThreads + threadIdx.x) * kGroup;
    u[r].read(at.grad(place), place, end, at.vector);
    if (at.momenta != nullptr)
      b[r].read(at.momentum(place), place, end, at.vector);
  }
  blend_groups(source, at, b, u);
}

}  // namespace
}  // namespace canzona::linalg
