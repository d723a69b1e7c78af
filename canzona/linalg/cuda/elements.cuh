// Element-wise work on batches of matrices, 16 bytes at a time if they are
// aligned.
//
//   struct Double {                       // makes a worker for matrix k
//     Strided<float> a;
//     struct Worker {
//       float* a;
//       int64_t stride;
//       template <int V>                  // V elements from row i, column j
//       __device__ void at(int64_t i, int64_t j) const { … }
//     };
//     __device__ Worker of(int64_t k) const { return {a.of(k), …}; }
//   };
//   launch_elements<4>(engine, "double", work, extent, vectors);
//
// The worker keeps in registers what is the same for all elements. Everything
// here has internal linkage: each file of kernels has its own copy.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "canzona/base/master_bits.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/matrix.h"

namespace canzona::linalg {
namespace {

template <class Real, int V>
struct alignas(sizeof(Real) * V) Vector {
  Real x[V];
};

template <int V, class Real>
__device__ Vector<Real, V> load(const Real* from) {
  return *reinterpret_cast<const Vector<Real, V>*>(from);
}
template <int V, class Real>
__device__ void store(Real* to, const Vector<Real, V>& values) {
  *reinterpret_cast<Vector<Real, V>*>(to) = values;
}

// The number of elements of a type that fill 16 bytes.
template <class Real>
constexpr int kVector = 16 / static_cast<int>(sizeof(Real));

// A batch as kernels see it.
template <class Real>
struct Strided {
  Real* data = nullptr;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;

  __device__ Real* of(int64_t k) const { return data + k * matrix_stride; }
};
template <class Real>
Strided<Real> strided(const Matrices& m) {
  return {m.as<Real>(), m.row_stride, m.matrix_stride};
}
template <class Real>
Strided<const Real> strided(const ConstMatrices& m) {
  return {m.as<Real>(), m.row_stride, m.matrix_stride};
}

struct Extent {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
};

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

// True if V elements from every V-th column on are aligned to their size.
template <int V, class View>
bool allows_vectors(const View& m) {
  const int64_t bytes = V * size_of(m.dtype);
  return is_aligned(m.data, bytes) && (m.rows <= 1 || m.row_stride % V == 0) &&
         (m.count <= 1 || m.matrix_stride % V == 0);
}

// Treats each matrix as one long row if none of the views has gaps.
template <class... Views>
void flatten(Views&... views) {
  if (!((views.contiguous() || views.rows <= 1) && ...)) return;
  const auto flat = [](auto& m) {
    m.cols *= m.rows;
    m.rows = std::min<int64_t>(m.rows, 1);
    m.row_stride = m.cols;
  };
  (flat(views), ...);
}

// Treats the whole batch as one long row, for work that is the same in every
// matrix.
template <class... Views>
void flatten_batch(Views&... views) {
  flatten(views...);
  const auto whole = [](const auto& m) {
    return m.rows == 1 && m.matrix_stride == m.cols;
  };
  if (!(whole(views) && ...)) return;
  const auto flat = [](auto& m) {
    m.cols *= m.count;
    m.row_stride = m.matrix_stride = m.cols;
    m.count = 1;
  };
  (flat(views), ...);
}

template <class View>
Extent extent_of(const View& m) {
  return {m.rows, m.cols, m.count};
}

template <int V, class Work>
__global__ void __launch_bounds__(256)
    elements_kernel(const Work work, const Extent extent, const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t row_step = int64_t{gridDim.y} * blockDim.y;
  const int64_t first_col =
      (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * V;
  const int64_t col_step = int64_t{gridDim.x} * blockDim.x * V;
  for (int64_t k = blockIdx.z; k < extent.count; k += gridDim.z) {
    const auto worker = work.of(k);
    for (int64_t i = first_row; i < extent.rows; i += row_step)
      for (int64_t j = first_col; j < extent.cols; j += col_step) {
        if (j + V <= extent.cols) {
          worker.template at<V>(i, j);
        } else {
          for (int64_t t = j; t < extent.cols; ++t) worker.template at<1>(i, t);
        }
      }
  }
}

struct Shape {
  dim3 grid;
  dim3 block;
};

// Returns blocks that cover the extent, at most `most` of them.
Shape shape_for(const Extent& e, int vector, int64_t most) {
  const auto pieces = [](int64_t size, int64_t piece) {
    return (size + piece - 1) / piece;
  };
  unsigned width = 8;
  while (width < 256 && int64_t{width} * vector < e.cols) width *= 2;
  const unsigned height = 256 / width;
  const int64_t x = std::min(pieces(e.cols, int64_t{width} * vector), most);
  const int64_t y =
      std::min(pieces(e.rows, height), std::clamp<int64_t>(most / x, 1, 65535));
  const int64_t z =
      std::min(e.count, std::clamp<int64_t>(most / (x * y), 1, 65535));
  return {dim3(static_cast<unsigned>(x), static_cast<unsigned>(y),
               static_cast<unsigned>(z)),
          dim3(width, height)};
}

// Enough persistent blocks to fill the GPU.
constexpr int64_t kBlocksPerMultiprocessor = 8;

// `Device` is the engine, or anything with a stream and multiprocessors. An
// engine's guarded work is skipped if the guard's number says so.
template <int V, class Device, class Work>
void launch_elements(Device& device, std::string_view name, const Work& work,
                     const Extent& extent, bool vectors) {
  if (extent.rows == 0 || extent.cols == 0 || extent.count == 0) return;
  const int64_t most = kBlocksPerMultiprocessor * device.num_multiprocessors();
  const Shape shape = shape_for(extent, vectors ? V : 1, most);
  const int32_t* skip = nullptr;
  if constexpr (requires { device.skip_flag(); }) skip = device.skip_flag();
  if (vectors)
    elements_kernel<V>
        <<<shape.grid, shape.block, 0, device.stream()>>>(work, extent, skip);
  else
    elements_kernel<1>
        <<<shape.grid, shape.block, 0, device.stream()>>>(work, extent, skip);
  check_cuda(cudaGetLastError(), name);
}

}  // namespace

// Arithmetic that rounds every operation separately, as a CPU does. It is
// written out because a compiler may fuse * and +.

namespace {

__device__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ float root(float a) { return __fsqrt_rn(a); }

__device__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ double root(double a) { return __dsqrt_rn(a); }

// Rounds to nearest, ties to even; a NaN stays a NaN.
__device__ uint16_t to_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

__device__ float from_bf16(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}

__device__ bool is_finite(float value) {
  return (__float_as_uint(value) & 0x7f800000U) != 0x7f800000U;
}
__device__ bool is_finite(double value) {
  return (__double2hiint(value) & 0x7ff00000) != 0x7ff00000;
}

// Returns the magnitude as an integer of the same order, with NaNs above
// infinity.
__device__ uint64_t magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7fffffffU;
}
__device__ uint64_t magnitude_bits(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value)) &
         0x7fffffffffffffffULL;
}

// Rounds numbers to bf16 as they are stored.
template <int V, class Real>
__device__ void store_rounded(uint16_t* to, const Vector<Real, V>& values) {
  Vector<uint16_t, V> rounded;
  for (int t = 0; t < V; ++t)
    rounded.x[t] = to_bf16(static_cast<float>(values.x[t]));
  store<V>(to, rounded);
}

// Rounds masters to bf16 weights as they are stored.
template <int V, class Real>
__device__ void store_weights(uint16_t* to, const Vector<Real, V>& masters) {
  Vector<uint16_t, V> weights;
  for (int t = 0; t < V; ++t)
    weights.x[t] =
        weight_of_master(__float_as_uint(static_cast<float>(masters.x[t])));
  store<V>(to, weights);
}

// Element-wise work on a run.
struct RoundToBf16 {
  uint16_t* to;
  const float* from;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    store_rounded<V>(to + j, load<V>(from + j));
  }
  __device__ RoundToBf16 of(int64_t) const { return *this; }

  bool allows_vectors() const {
    return is_aligned(from, 16) && is_aligned(to, 8);
  }
};

}  // namespace

}  // namespace canzona::linalg
