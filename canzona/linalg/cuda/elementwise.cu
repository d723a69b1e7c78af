// Element-wise work of the CUDA engine on whole matrices.
#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/number_stream.h"

namespace canzona::linalg {
namespace {

// Copies values, possibly to another type. 16-bit values are bf16, and the
// other side is fp32.
template <class To, class From>
struct Copy {
  Strided<To> to;
  Strided<const From> from;

  struct Worker {
    To* to;
    const From* from;
    int64_t to_stride, from_stride;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      const auto in = load<V>(from + i * from_stride + j);
      To* out_at = to + i * to_stride + j;
      if constexpr (sizeof(To) == 2) {
        store_rounded<V>(out_at, in);
      } else {
        Vector<To, V> out;
        for (int t = 0; t < V; ++t)
          if constexpr (sizeof(From) == 2)
            out.x[t] = from_bf16(in.x[t]);
          else
            out.x[t] = static_cast<To>(in.x[t]);
        store<V>(out_at, out);
      }
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k), from.of(k), to.row_stride, from.row_stride};
  }
};

template <class Bits, class View>
Strided<Bits> strided_bits(const View& m) {
  return {reinterpret_cast<Bits*>(m.data), m.row_stride, m.matrix_stride};
}

template <class Real>
struct SetIdentity {
  Strided<Real> a;
  const Real* diagonals;

  struct Worker {
    Real* a;
    int64_t stride;
    Real diagonal;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      Vector<Real, V> out;
      for (int t = 0; t < V; ++t) out.x[t] = i == j + t ? diagonal : Real{0};
      store<V>(a + i * stride + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {a.of(k), a.row_stride, diagonals[k]};
  }
};

// The diagonal's elements as one row.
template <class Real>
struct AddDiagonal {
  Strided<Real> a;
  const Real* values;

  struct Worker {
    Real* a;
    int64_t stride;
    Real value;
    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      static_assert(V == 1);
      Real& element = a[j * stride + j];
      element = add(element, value);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {a.of(k), a.row_stride, values[k]};
  }
};

template <class Real>
struct Axpby {
  Strided<Real> y;
  Strided<const Real> x;
  const Real* alphas;
  const Real* beta;

  struct Worker {
    Real* y;
    const Real* x;
    int64_t y_stride, x_stride;
    Real alpha, beta;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      auto out = load<V>(x + i * x_stride + j);
      for (int t = 0; t < V; ++t) out.x[t] = mul(alpha, out.x[t]);
      if (beta != 0) {
        const auto old = load<V>(y + i * y_stride + j);
        for (int t = 0; t < V; ++t)
          out.x[t] = add(out.x[t], mul(beta, old.x[t]));
      }
      store<V>(y + i * y_stride + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {y.of(k), x.of(k), y.row_stride, x.row_stride, alphas[k], *beta};
  }
};

// An index outside the matrix reads nothing and gives NaN.
__device__ bool is_inside(int64_t entry, int64_t size) {
  return entry >= 0 && entry < size;
}

template <class Real, bool kRows>
struct Permute {
  Strided<Real> to;
  Strided<const Real> from;
  ConstOrders orders;
  int64_t matrices;

  struct Worker {
    Real* to;
    const Real* from;
    int64_t to_stride, from_stride;
    const int64_t* order;
    int64_t length;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      Vector<Real, V> out;
      for (int t = 0; t < V; ++t) out.x[t] = static_cast<Real>(NAN);
      const int64_t entry = order[kRows ? i : j];
      if constexpr (kRows) {
        if (is_inside(entry, length))
          out = load<V>(from + entry * from_stride + j);
      } else {
        static_assert(V == 1);
        if (is_inside(entry, length)) out.x[0] = from[i * from_stride + entry];
      }
      store<V>(to + i * to_stride + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k),
            from.of(k),
            to.row_stride,
            from.row_stride,
            orders.data + k * orders.count / matrices * orders.length,
            orders.length};
  }
};

template <class Real>
struct ScaleColumns {
  Strided<Real> to;
  Strided<const Real> from;
  Strided<const Real> factors;

  struct Worker {
    Real* to;
    const Real* from;
    const Real* factors;
    int64_t to_stride, from_stride;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      auto out = load<V>(from + i * from_stride + j);
      const auto factor = load<V>(factors + j);
      for (int t = 0; t < V; ++t) out.x[t] = mul(out.x[t], factor.x[t]);
      store<V>(to + i * to_stride + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k), from.of(k), factors.of(k), to.row_stride,
            from.row_stride};
  }
};

void check_orders(ConstOrders orders, int64_t size, int64_t matrices) {
  CANZONA_CHECK_EQ(orders.length, size, "entries of an order");
  CANZONA_CHECK(orders.count > 0 && matrices % orders.count == 0, matrices,
                " matrices in ", orders.count, " orders");
}

}  // namespace

void CudaEngine::copy(Matrices to, ConstMatrices from) {
  CANZONA_CHECK(to.dtype == from.dtype, "copy from ", to_string(from.dtype),
                " to ", to_string(to.dtype));
  convert(to, from);
}

void CudaEngine::convert(Matrices to, ConstMatrices from) {
  check_same_batch(to, from);
  if (dry("convert", to, from)) return;
  flatten_batch(to, from);
  if (to.dtype == DType::kBf16 || from.dtype == DType::kBf16) {
    const bool vectors = allows_vectors<4>(to) && allows_vectors<4>(from);
    if (to.dtype == DType::kBf16 && from.dtype == DType::kFp32)
      return launch_elements<4>(
          *this, "convert",
          Copy<uint16_t, float>{strided_bits<uint16_t>(to),
                                strided<float>(from)},
          extent_of(to), vectors);
    CANZONA_CHECK(to.dtype == DType::kFp32, "conversion of ",
                  to_string(from.dtype), " to ", to_string(to.dtype));
    return launch_elements<4>(
        *this, "convert",
        Copy<float, uint16_t>{strided<float>(to),
                              strided_bits<const uint16_t>(from)},
        extent_of(to), vectors);
  }
  with_real_type(to.dtype, [&]<class To>(To) {
    with_real_type(from.dtype, [&]<class From>(From) {
      constexpr int V = sizeof(To) == 4 && sizeof(From) == 4 ? 4 : 2;
      launch_elements<V>(*this, "convert",
                         Copy<To, From>{strided<To>(to), strided<From>(from)},
                         extent_of(to),
                         allows_vectors<V>(to) && allows_vectors<V>(from));
    });
  });
}

void CudaEngine::set_identity(Matrices a, std::span<const double> diagonals) {
  CANZONA_CHECK_EQ(diagonals.size(), a.count, "diagonals");
  with_real_type(a.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    const Real* values = push<Real>(diagonals);
    if (dry("set_identity", a)) return;
    launch_elements<V>(*this, "set_identity",
                       SetIdentity<Real>{strided<Real>(a), values},
                       extent_of(a), allows_vectors<V>(a));
  });
}

void CudaEngine::add_diagonal(Matrices a, std::span<const double> values) {
  CANZONA_CHECK_EQ(values.size(), a.count, "diagonals");
  with_real_type(a.dtype, [&]<class Real>(Real) {
    const Real* added = push<Real>(values);
    if (dry("add_diagonal", a)) return;
    launch_elements<1>(*this, "add_diagonal",
                       AddDiagonal<Real>{strided<Real>(a), added},
                       {1, std::min(a.rows, a.cols), a.count}, false);
  });
}

void CudaEngine::axpby(Matrices y, std::span<const double> alphas,
                       ConstMatrices x, double beta) {
  check_same_batch(y, x);
  CANZONA_CHECK_EQ(alphas.size(), y.count, "factors");
  with_real_type(y.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    const Real* a = push<Real>(alphas);
    const Real* b = push<Real>(beta);
    if (dry("axpby", y, x)) return;
    flatten(y, x);
    launch_elements<V>(
        *this, "axpby", Axpby<Real>{strided<Real>(y), strided<Real>(x), a, b},
        extent_of(y), allows_vectors<V>(y) && allows_vectors<V>(x));
  });
}

void CudaEngine::permute_columns(Matrices to, ConstMatrices from,
                                 ConstOrders orders) {
  check_same_batch(to, from);
  check_orders(orders, to.cols, to.count);
  if (dry("permute_columns", to, from, orders)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    launch_elements<1>(
        *this, "permute_columns",
        Permute<Real, false>{strided<Real>(to), strided<Real>(from), orders,
                             to.count},
        extent_of(to), false);
  });
}

void CudaEngine::permute_rows(Matrices to, ConstMatrices from,
                              ConstOrders orders) {
  check_same_batch(to, from);
  check_orders(orders, to.rows, to.count);
  if (dry("permute_rows", to, from, orders)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(
        *this, "permute_rows",
        Permute<Real, true>{strided<Real>(to), strided<Real>(from), orders,
                            to.count},
        extent_of(to), allows_vectors<V>(to) && allows_vectors<V>(from));
  });
}

void CudaEngine::scale_columns(Matrices to, ConstMatrices from,
                               ConstMatrices factors) {
  check_same_batch(to, from);
  CANZONA_CHECK_EQ(factors.cols, to.cols, "factors");
  CANZONA_CHECK_EQ(factors.count, to.count, "matrices in a batch");
  if (dry("scale_columns", to, from, factors)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(
        *this, "scale_columns",
        ScaleColumns<Real>{strided<Real>(to), strided<Real>(from),
                           strided<Real>(factors)},
        extent_of(to),
        allows_vectors<V>(to) && allows_vectors<V>(from) &&
            allows_vectors<V>(factors));
  });
}

namespace {

// Eigenvalues on a GPU: sorting them, and powers of them.

constexpr int kThreads = 256;

// Maps numbers to integers of the same order; both zeros are equal. NaNs are
// ordered, too, so that the result is always a permutation.
__device__ int64_t sort_key(double value) {
  const int64_t bits = __double_as_longlong(add(value, 0.0));
  return bits >= 0 ? bits : bits ^ 0x7fffffffffffffffLL;
}

// The position of a value is the number of values before it.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    sort_kernel(int64_t* orders, Strided<const Real> values, int64_t n,
                int64_t count, bool falling) {
  __shared__ int64_t keys[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Real* row = values.of(k);
    const int64_t key = i < n ? sort_key(row[i]) : 0;
    int64_t place = 0;
    for (int64_t begin = 0; begin < n; begin += kThreads) {
      __syncthreads();
      if (begin + threadIdx.x < n)
        keys[threadIdx.x] = sort_key(row[begin + threadIdx.x]);
      __syncthreads();
      const int64_t size = min(n - begin, int64_t{kThreads});
      for (int64_t j = 0; j < size; ++j) {
        const bool before = falling ? keys[j] > key : keys[j] < key;
        place += before || (keys[j] == key && begin + j < i) ? 1 : 0;
      }
    }
    if (i < n) orders[k * n + place] = i;
  }
}

// One block per matrix: all of its threads must know the smallest value before
// one is changed.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    raise_kernel(Strided<Real> values, int64_t n, int64_t count,
                 const double* floors, bool shift, const double* exponent) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    Real* row = values.of(k);
    const double floor = floors[k];
    const double power = *exponent;
    const double smallest = row[0];
    double lift = smallest < floor ? sub(floor, smallest) : 0;
    if (shift) lift = sub(floor, smallest < 0 ? smallest : 0);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < n; j += kThreads)
      row[j] =
          static_cast<Real>(pow(add(static_cast<double>(row[j]), lift), power));
  }
}

template <class Real>
struct InverseRoots {
  Strided<Real> to;
  Strided<const Real> from;
  const double* scalars;  // scale, floor

  struct Worker {
    Real* to;
    const Real* from;
    double scale, floor;
    template <int V>
    __device__ void at(int64_t, int64_t j) const {
      const auto in = load<V>(from + j);
      Vector<Real, V> out;
      for (int t = 0; t < V; ++t) {
        const double value = in.x[t];
        const double raised = value < floor ? floor : value;
        out.x[t] = static_cast<Real>(quotient(1.0, root(mul(scale, raised))));
      }
      store<V>(to + j, out);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to.of(k), from.of(k), scalars[0], scalars[1]};
  }
};

}  // namespace

void CudaEngine::sort(Orders orders, ConstMatrices values, bool falling) {
  CANZONA_CHECK_EQ(orders.count, values.count, "orders");
  CANZONA_CHECK_EQ(orders.length, values.cols, "entries of an order");
  const int64_t n = values.cols;
  if (n == 0 || values.count == 0) return;
  if (dry("sort", orders.data, values, falling)) return;
  const dim3 grid(
      static_cast<unsigned>((n + kThreads - 1) / kThreads),
      static_cast<unsigned>(std::min<int64_t>(values.count, 65535)));
  with_real_type(values.dtype, [&]<class Real>(Real) {
    sort_kernel<Real><<<grid, kThreads, 0, stream()>>>(
        orders.data, strided<Real>(values), n, values.count, falling);
  });
  check_cuda(cudaGetLastError(), "sort");
}

void CudaEngine::raise_values(Matrices values, std::span<const double> floors,
                              bool shift, double exponent) {
  CANZONA_CHECK_EQ(floors.size(), values.count, "floors");
  const double* lowest = push<double>(floors);
  const double* power = push<double>(exponent);
  if (values.cols == 0 || values.count == 0) return;
  if (dry("raise_values", values, shift)) return;
  with_real_type(values.dtype, [&]<class Real>(Real) {
    raise_kernel<Real><<<static_cast<unsigned>(
                             std::min<int64_t>(values.count, int64_t{1} << 20)),
                         kThreads, 0, stream()>>>(
        strided<Real>(values), values.cols, values.count, lowest, shift, power);
  });
  check_cuda(cudaGetLastError(), "raise_values");
}

void CudaEngine::inverse_roots(Matrices to, ConstMatrices from, double scale,
                               double floor) {
  check_same_batch(to, from);
  const double* scalars = push<double>({scale, floor});
  if (dry("inverse_roots", to, from)) return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    constexpr int V = kVector<Real>;
    launch_elements<V>(
        *this, "inverse_roots",
        InverseRoots<Real>{strided<Real>(to), strided<Real>(from), scalars},
        {1, to.cols, to.count},
        allows_vectors<V>(to) && allows_vectors<V>(from));
  });
}

// Numbers that are generated and hashed on the GPU.

namespace {

// As in base/random.h.
__device__ uint64_t stream_bits(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

struct FillNumbers {
  float* to;
  NumberStream stream;
  NumberRows rows;

  template <int V>
  __device__ void at(int64_t i, int64_t j) const {
    static_assert(V == 1);
    const uint64_t place =
        rows.first + static_cast<uint64_t>(i * rows.stream_stride + j);
    to[i * rows.row_stride + j] =
        stream.number(stream_bits(stream.seed, place));
  }
  __device__ FillNumbers of(int64_t) const { return *this; }
};

constexpr int kHashThreads = 256;

// Elements are numbered row by row; each block adds its sums to both words.
template <class Bits>
__global__ void __launch_bounds__(kHashThreads)
    hash_kernel(const Bits* from, uint64_t seed, NumberRows rows,
                unsigned long long* words) {
  uint64_t low = 0, high = 0;
  const int64_t all = rows.rows * rows.count;
  const int64_t step = int64_t{gridDim.x} * kHashThreads;
  for (int64_t i = int64_t{blockIdx.x} * kHashThreads + threadIdx.x; i < all;
       i += step) {
    const int64_t row = rows.rows == 1 ? 0 : i / rows.count;
    const int64_t column = i - row * rows.count;
    const uint64_t place = stream_bits(
        seed,
        rows.first + static_cast<uint64_t>(row * rows.stream_stride + column));
    const uint64_t bits = from[row * rows.row_stride + column];
    low += stream_bits(place, bits);
    high += stream_bits(~place, bits);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    low += __shfl_down_sync(~0U, low, lanes);
    high += __shfl_down_sync(~0U, high, lanes);
  }
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(words, static_cast<unsigned long long>(low));
  atomicAdd(words + 1, static_cast<unsigned long long>(high));
}

}  // namespace

void fill_cuda_numbers(Engine& engine, float* to, const NumberStream& stream,
                       const NumberRows& rows) {
  auto& gpu = static_cast<CudaEngine&>(engine);
  gpu.needs_results();  // seeds change every step, so it is never repeated
  launch_elements<1>(gpu, "fill_numbers", FillNumbers{to, stream, rows},
                     {rows.rows, rows.count, 1}, false);
}

NumberSums sum_cuda_hashes(Engine& engine, const std::byte* from,
                           int64_t element_bytes, uint64_t seed,
                           const NumberRows& rows) {
  auto& gpu = static_cast<CudaEngine&>(engine);
  const int64_t all = rows.rows * rows.count;
  NumberSums sums{};
  if (all == 0) return sums;
  Arena& arena = gpu.arena();
  const Arena::Scope scope(arena);
  auto* words = arena.take_array<unsigned long long>(2);
  gpu.set_zero(reinterpret_cast<std::byte*>(words), sizeof(sums));
  const int64_t most = kBlocksPerMultiprocessor * gpu.num_multiprocessors();
  const auto blocks = static_cast<unsigned>(
      std::min((all + kHashThreads - 1) / kHashThreads, most));
  const auto launch = [&]<class Bits>(const Bits* bits) {
    hash_kernel<<<blocks, kHashThreads, 0, gpu.stream()>>>(bits, seed, rows,
                                                           words);
  };
  if (element_bytes == 2)
    launch(reinterpret_cast<const uint16_t*>(from));
  else
    launch(reinterpret_cast<const uint32_t*>(from));
  check_cuda(cudaGetLastError(), "launch of hash_kernel");
  const auto found = gpu.results(words, 2);
  std::copy(found.begin(), found.end(), sums.begin());
  return sums;
}

}  // namespace canzona::linalg
