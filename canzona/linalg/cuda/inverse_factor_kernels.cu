#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/kernels.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
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

// Elimination in place: to the right of column k is what is left of the matrix,
// to the left of it the inverse so far, both before rows are divided by the
// roots of their pivots. Rows are final once they have been the pivot's.
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

}  // namespace canzona
