#include <cuda_fp16.h>

#include "canzona/linalg/cuda/algebra/blends.cuh"

namespace canzona::linalg {
namespace {

constexpr int kThreads = kSumThreads;

// Multiplies adjacent numbers of a matrix by the factors of their rows.
template <class Real>
__device__ void even_out(const BlendSource<Real>& source, int64_t matrix,
                         int64_t place, Group<Real>& u) {
  const Real* factors = source.row_factors + matrix * source.rows;
  const int64_t row = place / source.cols;
  int64_t left = (row + 1) * source.cols - place;
  int64_t at = row;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (place + i >= source.elements) return;
    if (left == 0) {
      ++at;
      left = source.cols;
    }
    u.at[i] = mul(u.at[i], factors[at]);
    --left;
  }
}

template <class To, class Real>
__device__ To rounded(Real value, double scale) {
  const double scaled = static_cast<double>(value) * scale;
  if constexpr (sizeof(To) == 8) return scaled;
  if constexpr (sizeof(To) == 4) return static_cast<float>(scaled);
  // Rounds by way of fp32, as references do.
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
    g[r].read(at.grad(place), place, source.elements, at.vector);
    if (at.momenta != nullptr)
      b[r].read(at.momentum(place), place, source.elements, at.vector);
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t place = begin + (r * kThreads + threadIdx.x) * kGroup;
    if (place >= source.elements) continue;
    if (at.momenta != nullptr) {
      const Coefficients<Real> k(source.blend);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        b[r].at[i] = advance(k, b[r].at[i], g[r].at[i]);
        g[r].at[i] = blend_of(source, k, b[r].at[i], g[r].at[i]);
      }
      b[r].write(at.momentum(place), place, source.elements, at.vector);
    }
    if (source.row_factors != nullptr) even_out(source, matrix, place, g[r]);
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
    default:
      break;
  }
  launch_load_to<Real, double>(source, scales, target, stream);
}

template void launch_load(const BlendSource<float>&, const double*,
                          const LoadTarget&, cudaStream_t);
template void launch_load(const BlendSource<double>&, const double*,
                          const LoadTarget&, cudaStream_t);

}  // namespace canzona::linalg
