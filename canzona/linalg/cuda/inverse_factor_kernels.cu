#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/cuda/inverse_factor.h"
#include "canzona/linalg/cuda/launch.cuh"
#include "canzona/linalg/cuda/typed.h"

namespace canzona {
namespace {

constexpr int kSide = static_cast<int>(kFactorBlock);
constexpr int kThreads = 256;

// Rows one number apart from a power of two, so that columns are in different
// banks.
template <class Real>
struct Block {
  Real at[kSide][kSide + 1];
};

// One column of L after the other. False where a pivot is not positive, which a
// NaN is not either.
template <class Real>
__device__ bool factorise(Block<Real>& l, int n) {
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    const Real pivot = l.at[k][k];
    if (!(pivot > 0)) return false;
    const Real root = sqrt(pivot);
    __syncthreads();
    for (int i = k + threadIdx.x; i < n; i += kThreads)
      l.at[i][k] = i == k ? root : l.at[i][k] / root;
    __syncthreads();
    const int left = n - k - 1;
    for (int e = threadIdx.x; e < left * left; e += kThreads) {
      const int i = k + 1 + e / left;
      const int j = k + 1 + e % left;
      if (j <= i) l.at[i][j] -= l.at[i][k] * l.at[j][k];
    }
  }
  __syncthreads();
  return true;
}

// A thread solves for one column of the inverse.
template <class Real>
__device__ void invert(const Block<Real>& l, Block<Real>& x, int n) {
  const int column = threadIdx.x;
  if (column >= n) return;
  for (int i = 0; i < n; ++i) {
    Real sum = i == column ? Real{1} : Real{0};
    for (int k = column; k < i; ++k) sum -= l.at[i][k] * x.at[k][column];
    x.at[i][column] = i < column ? Real{0} : sum / l.at[i][i];
  }
}

template <class Real>
__global__ void __launch_bounds__(kThreads)
    invert_block_kernel(Strided<Real> gram, Strided<Real> inverse, int n,
                        int32_t* info) {
  extern __shared__ std::byte memory[];
  auto& l = *reinterpret_cast<Block<Real>*>(memory);
  auto& x = *reinterpret_cast<Block<Real>*>(memory + sizeof(Block<Real>));
  const int64_t matrix = blockIdx.x;
  Real* from = gram.of(matrix);
  Real* to = inverse.of(matrix);
  for (int e = threadIdx.x; e < n * n; e += kThreads)
    l.at[e / n][e % n] = from[e / n * gram.row_stride + e % n];
  if (!factorise(l, n)) {
    if (threadIdx.x == 0) info[matrix] = 1;
    return;
  }
  invert(l, x, n);
  __syncthreads();
  for (int e = threadIdx.x; e < n * n; e += kThreads) {
    const int i = e / n, j = e % n;
    from[i * gram.row_stride + j] = j <= i ? l.at[i][j] : Real{0};
    to[i * inverse.row_stride + j] = x.at[i][j];
  }
}

}  // namespace

void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info) {
  if (gram.rows == 0 || gram.count == 0) return;
  if (engine.dry("invert_block", gram, inverse, info)) return;
  with_real_type(gram.dtype, [&]<class Real>(Real) {
    constexpr int kBytes = 2 * sizeof(Block<Real>);
    check_cuda(cudaFuncSetAttribute(invert_block_kernel<Real>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    kBytes),
               "cudaFuncSetAttribute of the inverse of a factor");
    invert_block_kernel<Real>
        <<<static_cast<unsigned>(gram.count), kThreads, kBytes,
           engine.stream()>>>(strided<Real>(gram), strided<Real>(inverse),
                              static_cast<int>(gram.rows), info);
  });
  check_launch("the inverse of a factor");
}

}  // namespace canzona
