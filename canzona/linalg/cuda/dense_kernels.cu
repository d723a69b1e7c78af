#include "canzona/base/check.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

template <class Real>
struct Scale {
  Strided<Real> c;
  const Real* beta;

  struct Worker {
    Real* c;
    int64_t stride;
    Real beta;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      static_assert(V == 1);
      Real& element = c[i * stride + j];
      element = beta == 0 ? Real{0} : mul(beta, element);
    }
  };
  __device__ Worker of(int64_t k) const {
    return {c.of(k), c.row_stride, *beta};
  }
};

template <class Real>
struct ClearAbove {
  Strided<Real> a;

  struct Worker {
    Real* a;
    int64_t stride;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      static_assert(V == 1);
      if (j > i) a[i * stride + j] = 0;
    }
  };
  __device__ Worker of(int64_t k) const { return {a.of(k), a.row_stride}; }
};

// Tiles pass through shared memory, so that reads and writes go along rows.
constexpr int kTile = 32;
constexpr int kTileRows = 8;

template <class Real>
struct Tile {
  Real x[kTile][kTile + 1];

  __device__ void read(const Real* from, int64_t stride, int64_t row,
                       int64_t col, int64_t rows, int64_t cols) {
    for (int i = threadIdx.y; i < kTile; i += kTileRows)
      if (row + i < rows && col + threadIdx.x < cols)
        x[i][threadIdx.x] = from[(row + i) * stride + col + threadIdx.x];
  }
};

template <class Real>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(Strided<Real> to, Strided<const Real> from, Extent e) {
  __shared__ Tile<Real> tile;
  const int64_t row = int64_t{blockIdx.y} * kTile;
  const int64_t col = int64_t{blockIdx.x} * kTile;
  for (int64_t k = blockIdx.z; k < e.count; k += gridDim.z) {
    __syncthreads();
    tile.read(from.of(k), from.row_stride, row, col, e.rows, e.cols);
    __syncthreads();
    for (int i = threadIdx.y; i < kTile; i += kTileRows)
      if (col + i < e.cols && row + threadIdx.x < e.rows)
        to.of(k)[(col + i) * to.row_stride + row + threadIdx.x] =
            tile.x[threadIdx.x][i];
  }
}

template <class Real>
__global__ void __launch_bounds__(kTile* kTileRows)
    mirror_kernel(Strided<Real> c, int64_t n, int64_t count) {
  __shared__ Tile<Real> tile;
  if (blockIdx.x > blockIdx.y) return;
  const int64_t row = int64_t{blockIdx.y} * kTile;
  const int64_t col = int64_t{blockIdx.x} * kTile;
  for (int64_t k = blockIdx.z; k < count; k += gridDim.z) {
    __syncthreads();
    tile.read(c.of(k), c.row_stride, row, col, n, n);
    __syncthreads();
    for (int i = threadIdx.y; i < kTile; i += kTileRows)
      if (row + threadIdx.x > col + i && row + threadIdx.x < n)
        c.of(k)[(col + i) * c.row_stride + row + threadIdx.x] =
            tile.x[threadIdx.x][i];
  }
}

dim3 tiles(int64_t rows, int64_t cols, int64_t count) {
  const int64_t high = (rows + kTile - 1) / kTile;
  CANZONA_CHECK(high <= 65535, rows, " rows to transpose");
  return dim3(static_cast<unsigned>((cols + kTile - 1) / kTile),
              static_cast<unsigned>(high),
              static_cast<unsigned>(std::min<int64_t>(count, 65535)));
}

// Writes some parts of every element, `step` elements apart.
struct Split {
  struct Order {
    uint8_t parts[kMostParts];
    int size;
  };
  uint16_t* to;
  int64_t to_stride, to_matrix_stride;
  Strided<const float> from;
  int64_t step;
  Order order;
  bool vectors;  // can be stored at once

  struct Worker {
    uint16_t* to;
    const float* from;
    int64_t to_stride, from_stride, step;
    Order order;
    bool vectors;
    template <int V>
    __device__ void at(int64_t i, int64_t j) const {
      const auto values = load<V>(from + i * from_stride + j);
      Vector<uint16_t, V> parts[3];
      for (int t = 0; t < V; ++t) {
        float left = values.x[t];
        for (auto& part : parts) left = take_part(part.x[t], left);
      }
      uint16_t* place = to + i * to_stride + j;
#pragma unroll
      for (int p = 0; p < kMostParts; ++p, place += step) {
        if (p == order.size) break;
        const int which = order.parts[p];
        const auto& part = which == 0   ? parts[0]
                           : which == 1 ? parts[1]
                                        : parts[2];
        if (vectors)
          store<V>(place, part);
        else
          for (int t = 0; t < V; ++t) place[t] = part.x[t];
      }
    }
    // Returns the remainder. Beyond the range of bf16 there is none.
    static __device__ float take_part(uint16_t& part, float value) {
      part = to_bf16(value);
      const float coarse = __uint_as_float(uint32_t{part} << 16);
      return is_finite(coarse) ? sub(value, coarse) : 0;
    }
  };
  __device__ Worker of(int64_t k) const {
    return {to + k * to_matrix_stride,
            from.of(k),
            to_stride,
            from.row_stride,
            step,
            order,
            vectors};
  }
};

}  // namespace

void launch_scale(CudaEngine& engine, Matrices c, const void* beta) {
  if (engine.dry("scale", c)) return;
  with_real_type(c.dtype, [&]<class Real>(Real) {
    launch_elements<1>(
        engine, "scale",
        Scale<Real>{strided<Real>(c), static_cast<const Real*>(beta)},
        extent_of(c), false);
  });
}

void launch_clear_above(CudaEngine& engine, Matrices a) {
  if (engine.dry("clear_above", a)) return;
  with_real_type(a.dtype, [&]<class Real>(Real) {
    launch_elements<1>(engine, "clear_above",
                       ClearAbove<Real>{strided<Real>(a)}, extent_of(a), false);
  });
}

void launch_transpose(CudaEngine& engine, Matrices to, ConstMatrices from) {
  CANZONA_CHECK_EQ(to.rows, from.cols, "rows of a transpose");
  CANZONA_CHECK_EQ(to.cols, from.rows, "columns of a transpose");
  CANZONA_CHECK_EQ(to.count, from.count, "matrices in a batch");
  if (engine.dry("transpose", to, from) || from.elements() * from.count == 0)
    return;
  with_real_type(to.dtype, [&]<class Real>(Real) {
    transpose_kernel<Real><<<tiles(from.rows, from.cols, from.count),
                             dim3(kTile, kTileRows), 0, engine.stream()>>>(
        strided<Real>(to), strided<Real>(from), extent_of(from));
  });
  check_cuda(cudaGetLastError(), "transpose");
}

void launch_mirror(CudaEngine& engine, Matrices c) {
  if (engine.dry("mirror", c) || c.elements() * c.count == 0) return;
  with_real_type(c.dtype, [&]<class Real>(Real) {
    mirror_kernel<Real>
        <<<tiles(c.rows, c.cols, c.count), dim3(kTile, kTileRows), 0,
           engine.stream()>>>(strided<Real>(c), c.rows, c.count);
  });
  check_cuda(cudaGetLastError(), "mirror");
}

void launch_split(CudaEngine& engine, Matrices to, ConstMatrices from,
                  bool by_rows, std::span<const uint8_t> order) {
  CANZONA_CHECK(order.size() <= kMostParts, order.size(), " parts");
  if (engine.dry("split", to, from, by_rows, order.size(), order.front()))
    return;
  const int64_t step = by_rows ? from.rows * to.row_stride : from.cols;
  Split work{reinterpret_cast<uint16_t*>(to.data),
             to.row_stride,
             to.matrix_stride,
             strided<float>(from),
             step,
             {{}, static_cast<int>(order.size())},
             false};
  std::copy(order.begin(), order.end(), work.order.parts);
  const auto whole = [&](int64_t vector) {
    return step % vector == 0 && to.row_stride % vector == 0 &&
           to.matrix_stride % vector == 0;
  };
  const Extent extent = extent_of(from);
  work.vectors = whole(8);
  if (allows_vectors<8>(from) && work.vectors)
    return launch_elements<8>(engine, "split", work, extent, true);
  work.vectors = whole(4);
  launch_elements<4>(engine, "split", work, extent, allows_vectors<4>(from));
}

namespace {

constexpr int kSide = static_cast<int>(kFactorBlock);
constexpr int kHalf = kSide / 2;
// A thread holds four neighbouring rows of four neighbouring columns, and the
// same rows of the columns half a side further on.
constexpr int kGroup = 4;
constexpr int kAcross = kHalf / kGroup;  // threads per row
constexpr int kThreads = kSide / kGroup * kAcross;

template <class Real>
struct alignas(16) Four {
  Real x[kGroup];
};

// The pivot's row and column, passed from the threads that hold them to all
// others.
template <class Real>
struct Pivot {
  Four<Real> row[2 * kAcross];
  Four<Real> column[kSide / kGroup];
};

// Eliminates in place. To the right of column k lies what is left of the
// matrix, to its left the inverse so far, both before rows are divided by the
// roots of their pivots. A row is final once it has been the pivot's.
template <class Real>
struct Elimination {
  Real a[kGroup][2 * kGroup];
  int down, across;

  __device__ Elimination()
      : down(static_cast<int>(threadIdx.x) / kAcross),
        across(static_cast<int>(threadIdx.x) % kAcross) {}

  __device__ int row(int r) const { return down * kGroup + r; }
  __device__ int column(int j) const {
    return j / kGroup * kHalf + across * kGroup + j % kGroup;
  }

  // Handles pivots H·kHalf + 4b + P, so that their indices in `a` are
  // compile-time constants. Returns false if one is not positive, including
  // NaN.
  template <int H>
  __device__ bool run(Pivot<Real> (&pivots)[2], int n) {
    for (int b = 0; b < kAcross; ++b) {
      const int k = H * kHalf + b * kGroup;
      if (k < n && !step<H, 0>(pivots[0], b)) return false;
      if (k + 1 < n && !step<H, 1>(pivots[1], b)) return false;
      if (k + 2 < n && !step<H, 2>(pivots[0], b)) return false;
      if (k + 3 < n && !step<H, 3>(pivots[1], b)) return false;
    }
    return true;
  }

  template <int H, int P>
  __device__ bool step(Pivot<Real>& shared, int b) {
    const int here = H * kAcross + b;  // the rows with the pivot
    constexpr int kColumn = H * kGroup + P;
    if (down == here) {
      shared.row[across] = {a[P][0], a[P][1], a[P][2], a[P][3]};
      shared.row[kAcross + across] = {a[P][4], a[P][5], a[P][6], a[P][7]};
    }
    if (across == b)
      shared.column[down] = {a[0][kColumn], a[1][kColumn], a[2][kColumn],
                             a[3][kColumn]};
    __syncthreads();
    const Real pivot = shared.row[here].x[P];
    if (!(pivot > 0)) return false;
    if (down < here) return true;
    const Four<Real> left = shared.row[across];
    const Four<Real> right = shared.row[kAcross + across];
    const Four<Real> column = shared.column[down];
    const Real inverse = Real{1} / pivot;
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      if (down == here && r <= P) continue;
      const Real f = column.x[r] * inverse;
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        a[r][j] -= f * left.x[j];
        a[r][kGroup + j] -= f * right.x[j];
      }
      if (across == b) a[r][kColumn] = -f;
    }
    return true;
  }
};

// Reads only the lower triangle. Keeps only the diagonal of L.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    invert_block_kernel(Strided<Real> gram, Strided<Real> inverse, int n,
                        int32_t* info) {
  __shared__ Pivot<Real> pivots[2];
  __shared__ Real roots[kSide];
  const int64_t matrix = blockIdx.x;
  Real* from = gram.of(matrix);
  Real* to = inverse.of(matrix);
  Elimination<Real> mine;
  const auto for_each = [&](const auto& work) {
#pragma unroll
    for (int r = 0; r < kGroup; ++r)
#pragma unroll
      for (int j = 0; j < 2 * kGroup; ++j)
        work(mine.a[r][j], mine.row(r), mine.column(j));
  };
  for_each([&](Real& x, int i, int j) {
    const int high = max(i, j), low = min(i, j);
    x = high < n ? from[high * gram.row_stride + low] : Real{0};
  });
  if (!mine.template run<0>(pivots, n) || !mine.template run<1>(pivots, n)) {
    if (threadIdx.x == 0) info[matrix] = 1;
    return;
  }
  for_each([&](Real& x, int i, int j) {
    if (i != j || i >= n) return;
    roots[i] = sqrt(x);
    from[i * gram.row_stride + i] = roots[i];
    x = 1;
  });
  __syncthreads();
  for_each([&](Real& x, int i, int j) {
    if (i < n && j < n)
      to[i * inverse.row_stride + j] = j <= i ? x / roots[i] : Real{0};
  });
}

}  // namespace

void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info) {
  if (gram.rows == 0 || gram.count == 0) return;
  if (engine.dry("invert_block", gram, inverse, info)) return;
  with_real_type(gram.dtype, [&]<class Real>(Real) {
    invert_block_kernel<Real>
        <<<static_cast<unsigned>(gram.count), kThreads, 0, engine.stream()>>>(
            strided<Real>(gram), strided<Real>(inverse),
            static_cast<int>(gram.rows), info);
  });
  check_launch("the inverse of a factor");
}

}  // namespace canzona::linalg
