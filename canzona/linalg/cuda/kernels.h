// Launches that the sources of this folder share.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/matrix.h"

namespace canzona::linalg {

// Kernels around products.

// c = beta·c, with beta on the device and of c's type; with 0 the old c is
// ignored.
void launch_scale(CudaEngine& engine, Matrices c, const void* beta);
// Copies the part below the diagonal above it.
void launch_mirror(CudaEngine& engine, Matrices c);
// to = fromᵀ; they must not overlap.
void launch_transpose(CudaEngine& engine, Matrices to, ConstMatrices from);
// Zeroes the part above the diagonal.
void launch_clear_above(CudaEngine& engine, Matrices a);

// Splits a number x into parts in bf16: x rounded, the remainder rounded, and
// the remainder of both. `order` lists the parts that are wanted, by number;
// `to` gets those parts of `from` side by side or, by rows, one below the
// other. At most kMostParts.
inline constexpr int kMostParts = 6;
void launch_split(CudaEngine& engine, Matrices to, ConstMatrices from,
                  bool by_rows, std::span<const uint8_t> order);

// Norms that stay on the device.

// norms[i] = |A_i|_F, correct whenever it is representable. Takes scratch
// memory from the arena, in its own scope; must be called in dry runs, too.
void norms_on_device(CudaEngine& engine, double* norms, ConstMatrices a);

// sums[i·cols + j] = Σ_k a[k,j]·b[k,j] of matrix i, under the same conditions.
void column_sums_on_device(CudaEngine& engine, double* sums, ConstMatrices a,
                           ConstMatrices b);

// cuSOLVER and the triangular solves of cuBLAS, for batches.
//
// Libraries may choose algorithms by alignment, and their batched forms by the
// number of matrices. So all work is done on tidy copies, whose rows are
// 128-byte aligned. The batched Cholesky factor of small matrices has the same
// bits for any batch; batched eigenvectors and triangular solves do not, so
// these are done one by one, as are all large matrices.

Matrices tidy_matrices(Arena& arena, DType dtype, int64_t rows, int64_t cols,
                       int64_t count);
bool is_tidy(const ConstMatrices& m);

// Takes the columns of a matrix as rows, and returns its eigenvectors the same
// way; `values` is count x 1 x n. info[i], in the engine's memory, is 0 on
// success, here and below.
void solve_eigh(CudaEngine& engine, Matrices a, Matrices values, int32_t* info);
// The rows of `a` are the columns of a matrix, and are replaced by those of its
// orthogonal factor.
void solve_qr(CudaEngine& engine, Matrices a, int32_t* info);
// Computes the lower factor; the part above the diagonal is undefined.
void solve_cholesky(CudaEngine& engine, Matrices a, int32_t* info);
// B = B·L⁻ᵀ. May be repeated.
void solve_triangular(CudaEngine& engine, Matrices b, ConstMatrices l);

// Inverts Cholesky factors of whole batches, with products and a kernel for
// small blocks, without library calls that take one matrix at a time.
//
//   invert_factor(engine, gram, inverse, info);   // gram = L·Lᵀ, inverse = L⁻¹
//   times_transposed_inverse(engine, x, a, inverse);           // x = a·L⁻ᵀ
//
// A matrix's result depends on its size alone. Asynchronous.

// Reads the lower triangle of `gram` (square); afterwards its diagonal is L's,
// and the rest is undefined. `inverse`, another batch of the same shape, is
// lower triangular. info[i], in the engine's memory, is 0 if matrix i was
// positive definite; otherwise its inverse is undefined.
void invert_factor(CudaEngine& engine, Matrices gram, Matrices inverse,
                   int32_t* info);

// x = a·L⁻ᵀ; x must be neither of the two.
void times_transposed_inverse(CudaEngine& engine, Matrices x, ConstMatrices a,
                              ConstMatrices inverse);

// Blocks of at most this side are handled by the kernel.
inline constexpr int64_t kFactorBlock = 128;
// Writes the diagonal of L over that of gram's block, and L⁻¹ into the
// inverse's block.
void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info);

// The state of Cholesky QR on a batch: for each matrix whether it has failed,
// the lengths of its columns, and their distances from the columns before them.
struct CholeskyQrState {
  int64_t cols = 0;
  int64_t count = 0;
  int32_t* hopeless = nullptr;  // failed; one per matrix, 0 at first
  double* lengths = nullptr;    // of the columns before scaling
  double* distances = nullptr;  // of each original column from those before it
};

void launch_begin(CudaEngine& engine, const CholeskyQrState& state);
// Multiplies fp64 matrices by a power of two if squares would leave the range.
void launch_bring_into_range(CudaEngine& engine, const CholeskyQrState& state,
                             Matrices a);
// Computes lengths from their squares; `follow` also multiplies the distances
// by them.
void launch_take_lengths(CudaEngine& engine, const CholeskyQrState& state,
                         const double* squares, bool follow);
void launch_normalise(CudaEngine& engine, const CholeskyQrState& state,
                      Matrices a);
// far[i] = 1 if gram matrix i is far from the identity, otherwise 0.
void launch_find_far(CudaEngine& engine, int32_t* far, ConstMatrices gram);
// Marks those matrices as failed.
void launch_give_up(CudaEngine& engine, const CholeskyQrState& state,
                    const int32_t* far);
// Records the failures of a factorization, and its diagonal as distances.
void launch_take_factor(CudaEngine& engine, const CholeskyQrState& state,
                        const int32_t* info, ConstMatrices factor);
// Marks a matrix as failed if a distance is not above `noise`.
void launch_require_distance(CudaEngine& engine, const CholeskyQrState& state,
                             double noise);

// Maps a DType to a type, and checks that views match.

// Calls work(Real{}) with the type that `dtype` names.
template <class Work>
decltype(auto) with_real_type(DType dtype, const Work& work) {
  CANZONA_CHECK(dtype == DType::kFp32 || dtype == DType::kFp64,
                "not an operation of ", to_string(dtype));
  return dtype == DType::kFp32 ? work(float{}) : work(double{});
}

inline void check_same_batch(const ConstMatrices& a, const ConstMatrices& b) {
  CANZONA_CHECK_EQ(a.rows, b.rows, "rows");
  CANZONA_CHECK_EQ(a.cols, b.cols, "columns");
  CANZONA_CHECK_EQ(a.count, b.count, "matrices in a batch");
}

}  // namespace canzona::linalg
