#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/chunks.cuh"
#include "canzona/linalg/cuda/exact.cuh"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona {
namespace {

constexpr int kThreads = kSumThreads;
constexpr int kGroup = 4;   // neighbours that a thread takes at once
constexpr int kRounds = 4;  // groups that are under way together
constexpr int kPerBlock = kThreads * kGroup * kRounds;
constexpr int kLoadChunk = 8 * kPerBlock;  // one slot of a sum

// The larger magnitude; a NaN stays.
struct Larger {
  __device__ double operator()(double a, double b) const {
    const double x = fabs(a), y = fabs(b);
    if (!(x == x)) return x;
    return x < y || !(y == y) ? y : x;
  }
};

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

template <class Real>
__device__ Real blended(const Coefficients<Real>& k, Real momentum, Real grad) {
  return add(mul(k.from_grad, grad), mul(k.from_momentum, momentum));
}

// Some neighbouring numbers of a matrix, in one access where that is possible.
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

template <class Real>
struct Places {
  const Real* grad;
  Real* momentum;
  bool vector;

  __device__ Places(const BlendSource<Real>& source, int64_t matrix)
      : grad(source.grads[matrix]),
        momentum(source.momenta == nullptr ? nullptr : source.momenta[matrix]),
        vector(is_wide(grad) && is_wide(momentum)) {}
};

// Computes what the second pass will see, without leaving a trace.
template <class Real>
__device__ void read_blends(const BlendSource<Real>& source,
                            const Places<Real>& at, int64_t begin,
                            Group<Real> (&u)[kRounds]) {
  Group<Real> b[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t place = begin + (r * kThreads + threadIdx.x) * kGroup;
    u[r].read(at.grad, place, source.elements, at.vector);
    if (at.momentum != nullptr)
      b[r].read(at.momentum, place, source.elements, at.vector);
  }
  if (at.momentum == nullptr) return;
  const Coefficients<Real> k(source.blend);
#pragma unroll
  for (int r = 0; r < kRounds; ++r)
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      u[r].at[i] = blended(k, advance(k, b[r].at[i], u[r].at[i]), u[r].at[i]);
}

// Largest magnitudes (kPeak), or sums of squares of peak·u.
template <class Real, bool kPeak>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(BlendSource<Real> source, int64_t slots, const double* peaks,
                  double* out) {
  const int64_t matrix = blockIdx.y;
  const Places<Real> at(source, matrix);
  const double peak = peaks == nullptr ? 1.0 : peaks[matrix];
  double total = 0;
  for (int part = 0; part < kLoadChunk / kPerBlock; ++part) {
    Group<Real> u[kRounds];
    const int64_t begin =
        static_cast<int64_t>(blockIdx.x) * kLoadChunk + part * kPerBlock;
    if (begin >= source.elements) break;
    read_blends(source, at, begin, u);
#pragma unroll
    for (int r = 0; r < kRounds; ++r)
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const double value = static_cast<double>(u[r].at[i]);
        if constexpr (kPeak) {
          total = Larger()(total, value);
        } else {
          const double scaled = value * peak;
          total += scaled * scaled;
        }
      }
  }
  total = kPeak ? over_block(total, Larger()) : over_block(total, Add());
  if (threadIdx.x == 0) out[matrix * slots + blockIdx.x] = total;
}

// The power of two that brings the largest number near 1.
__global__ void __launch_bounds__(kThreads)
    peak_kernel(const double* slots, int64_t num_slots, double* peaks) {
  double largest = 0;
  for (int64_t i = threadIdx.x; i < num_slots; i += kThreads)
    largest = Larger()(largest, slots[blockIdx.x * num_slots + i]);
  largest = over_block(largest, Larger());
  if (threadIdx.x != 0) return;
  const bool plain = largest > 0 && largest < INFINITY;
  peaks[blockIdx.x] =
      plain ? ldexp(1.0, max(-1000, min(1000, -ilogb(largest)))) : 1.0;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const double* slots, int64_t num_slots, const double* peaks,
                 ScaleRule rule, double* scales) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < num_slots; i += kThreads)
    sum += slots[blockIdx.x * num_slots + i];
  sum = over_block(sum, Add());
  if (threadIdx.x != 0) return;
  const double peak = peaks == nullptr ? 1.0 : peaks[blockIdx.x];
  const double enlarged = rule.factor * sqrt(sum);
  const double epsilon = rule.epsilon * peak;
  const double divisor =
      rule.add_epsilon ? enlarged + epsilon : fmax(enlarged, epsilon);
  // A scale of 0 would hide an infinity.
  const bool is_finite = sum < INFINITY;
  scales[blockIdx.x] = !is_finite ? NAN : sum == 0 ? 0 : peak / divisor;
}

template <class To, class Real>
__device__ To rounded(Real value, double scale) {
  const double scaled = static_cast<double>(value) * scale;
  if constexpr (sizeof(To) == 8) return scaled;
  if constexpr (sizeof(To) == 4) return static_cast<float>(scaled);
  // By way of fp32, as references round.
  if constexpr (sizeof(To) == 2) return To(static_cast<float>(scaled));
}

template <class To, class Real>
__device__ void store(const LoadTarget& target, To* to, int64_t place,
                      int64_t elements, const Group<Real>& u, double scale) {
  alignas(16) To values[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) values[i] = rounded<To>(u.at[i], scale);
  const bool flat = target.row_stride == target.cols &&
                    reinterpret_cast<uintptr_t>(to) % alignof(Wide<To>) == 0;
  if (flat && place + kGroup <= elements) {
    *reinterpret_cast<Wide<To>*>(to + place) =
        *reinterpret_cast<const Wide<To>*>(values);
    return;
  }
  for (int i = 0; i < kGroup && place + i < elements; ++i) {
    const int64_t row = (place + i) / target.cols;
    to[row * target.row_stride + (place + i) % target.cols] = values[i];
  }
}

template <class Real, class To>
__global__ void __launch_bounds__(kThreads)
    load_kernel(BlendSource<Real> source, const double* scales,
                LoadTarget target) {
  const int64_t matrix = blockIdx.y;
  const Places<Real> at(source, matrix);
  const double scale = scales[matrix];
  To* to = reinterpret_cast<To*>(target.data) + matrix * target.matrix_stride;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPerBlock;
  Group<Real> g[kRounds], b[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t place = begin + (r * kThreads + threadIdx.x) * kGroup;
    g[r].read(at.grad, place, source.elements, at.vector);
    if (at.momentum != nullptr)
      b[r].read(at.momentum, place, source.elements, at.vector);
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t place = begin + (r * kThreads + threadIdx.x) * kGroup;
    if (place >= source.elements) continue;
    if (at.momentum != nullptr) {
      const Coefficients<Real> k(source.blend);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        b[r].at[i] = advance(k, b[r].at[i], g[r].at[i]);
        g[r].at[i] = blended(k, b[r].at[i], g[r].at[i]);
      }
      b[r].write(at.momentum, place, source.elements, at.vector);
    }
    store(target, to, place, source.elements, g[r], scale);
  }
}

template <class Real, class To>
void launch_load_to(const BlendSource<Real>& source, const double* scales,
                    const LoadTarget& target, cudaStream_t stream) {
  const dim3 grid(blocks_for(source.elements, kPerBlock),
                  static_cast<unsigned>(source.count));
  load_kernel<Real, To><<<grid, kThreads, 0, stream>>>(source, scales, target);
  check_launch("the load of a batch");
}

}  // namespace

int64_t scale_slots(int64_t elements) {
  return (elements + kLoadChunk - 1) / kLoadChunk;
}

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream) {
  const int64_t slots = scale_slots(source.elements);
  const dim3 grid(static_cast<unsigned>(slots),
                  static_cast<unsigned>(source.count));
  const auto count = static_cast<unsigned>(source.count);
  const double* peaks = nullptr;
  // Squares of fp32 never leave the range of fp64; those of fp64 may.
  if constexpr (sizeof(Real) == 8) {
    reduce_kernel<Real, true>
        <<<grid, kThreads, 0, stream>>>(source, slots, nullptr, work.slots);
    peak_kernel<<<count, kThreads, 0, stream>>>(work.slots, slots, work.peaks);
    peaks = work.peaks;
  }
  reduce_kernel<Real, false>
      <<<grid, kThreads, 0, stream>>>(source, slots, peaks, work.slots);
  scale_kernel<<<count, kThreads, 0, stream>>>(work.slots, slots, peaks, rule,
                                               work.scales);
  check_launch("the norms of a batch");
}

template <class Real>
void launch_load(const BlendSource<Real>& source, const double* scales,
                 const LoadTarget& target, cudaStream_t stream) {
  switch (target.dtype) {
    case DType::kFp16:
      return launch_load_to<Real, __half>(source, scales, target, stream);
    case DType::kBf16:
      return launch_load_to<Real, __nv_bfloat16>(source, scales, target,
                                                 stream);
    case DType::kFp32:
      return launch_load_to<Real, float>(source, scales, target, stream);
    case DType::kFp64:
      break;
  }
  launch_load_to<Real, double>(source, scales, target, stream);
}

template void launch_scales(const BlendSource<float>&, const ScaleRule&,
                            const ScaleWork&, cudaStream_t);
template void launch_scales(const BlendSource<double>&, const ScaleRule&,
                            const ScaleWork&, cudaStream_t);
template void launch_load(const BlendSource<float>&, const double*,
                          const LoadTarget&, cudaStream_t);
template void launch_load(const BlendSource<double>&, const double*,
                          const LoadTarget&, cudaStream_t);

}  // namespace canzona
