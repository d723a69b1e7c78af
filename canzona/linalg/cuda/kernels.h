// The sources of this folder launch these for each other.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

// Kernels around products.

// c = beta·c, beta on the device and of c's type; 0 ignores what c held.
void launch_scale(CudaEngine& engine, Matrices c, const void* beta);
// Copies what lies below the diagonal above it.
void launch_mirror(CudaEngine& engine, Matrices c);
// to = fromᵀ; the two do not overlap.
void launch_transpose(CudaEngine& engine, Matrices to, ConstMatrices from);
// Zeros above the diagonal.
void launch_clear_above(CudaEngine& engine, Matrices a);

// Parts of a number x, each in bf16: x, what that leaves of it, and what both
// leave. `order` lists which are wanted, by their number; to = those parts of
// `from` beside each other, or, by rows, one below the other. At most
// kMostParts.
inline constexpr int kMostParts = 6;
void launch_split(CudaEngine& engine, Matrices to, ConstMatrices from,
                  bool by_rows, std::span<const uint8_t> order);

// Norms that stay on the device.

// norms[i] = |A_i|_F, right wherever it is a number. Takes scratch memory from
// the arena, in a scope of its own; to be called in dry runs, too.
void norms_on_device(CudaEngine& engine, double* norms, ConstMatrices a);

// sums[i·cols + j] = Σ_k a[k,j]·b[k,j] of matrix i, likewise.
void column_sums_on_device(CudaEngine& engine, double* sums, ConstMatrices a,
                           ConstMatrices b);

// cuSOLVER and the triangular solves of cuBLAS, for batches.
//
// Libraries may choose by how memory is aligned, and their batched forms by
// how many matrices there are. So all work is done on tidy copies, whose rows
// begin on 128-byte borders. The batched Cholesky factor of small matrices has
// the same bits for any batch; batched eigenvectors and triangular solves have
// not, so that these are done one by one, as are all large matrices.

Matrices tidy_matrices(Arena& arena, DType dtype, int64_t rows, int64_t cols,
                       int64_t count);
bool is_tidy(const ConstMatrices& m);

// The columns of a matrix as rows, and its eigenvectors the same way; `values`
// is count x 1 x n. info[i] is 0 where it succeeded, in the engine's memory,
// as below.
void solve_eigh(CudaEngine& engine, Matrices a, Matrices values, int32_t* info);
// The rows of `a` are the columns of a matrix, and become those of its
// orthogonal factor.
void solve_qr(CudaEngine& engine, Matrices a, int32_t* info);
// The lower factor; what is above the diagonal is of no use.
void solve_cholesky(CudaEngine& engine, Matrices a, int32_t* info);
// B = B·L⁻ᵀ. May be repeated.
void solve_triangular(CudaEngine& engine, Matrices b, ConstMatrices l);

// Inverses of Cholesky factors, for whole batches: products and a kernel for
// small blocks, nothing that a library does one matrix at a time.
//
//   invert_factor(engine, gram, inverse, info);   // gram = L·Lᵀ, inverse = L⁻¹
//   times_transposed_inverse(engine, x, a, inverse);           // x = a·L⁻ᵀ
//
// A matrix's result depends on its size alone. Asynchronous.

// Reads the lower triangle of `gram` (square); afterwards its diagonal is L's,
// and the rest of it nothing of use. `inverse`, another batch of the same
// shape, is lower triangular. info[i], in the engine's memory, is 0 where
// matrix i was positive definite; else its inverse is nothing of use.
void invert_factor(CudaEngine& engine, Matrices gram, Matrices inverse,
                   int32_t* info);

// x = a·L⁻ᵀ; x is neither of the two.
void times_transposed_inverse(CudaEngine& engine, Matrices x, ConstMatrices a,
                              ConstMatrices inverse);

// Blocks of at most this side are left to the kernel.
inline constexpr int64_t kFactorBlock = 128;
// The diagonal of L in place of a block of gram's, L⁻¹ in the inverse's block.
void launch_invert_block(CudaEngine& engine, Matrices gram, Matrices inverse,
                         int32_t* info);

// Steps of Cholesky QR on a batch; for each matrix whether it still has hope,
// the lengths of its columns, and how far they were from those before them.
struct CholeskyQrState {
  int64_t cols = 0;
  int64_t count = 0;
  int32_t* hopeless = nullptr;  // one per matrix, 0 at first
  double* lengths = nullptr;    // of the columns before they were scaled
  double* distances = nullptr;  // of each first column from those before it
};

void launch_begin(CudaEngine& engine, const CholeskyQrState& state);
// Multiplies matrices of fp64 by a power of two where squares would leave the
// range.
void launch_bring_into_range(CudaEngine& engine, const CholeskyQrState& state,
                             Matrices a);
// From the squares of the lengths; `follow` multiplies the distances by them.
void launch_take_lengths(CudaEngine& engine, const CholeskyQrState& state,
                         const double* squares, bool follow);
void launch_normalise(CudaEngine& engine, const CholeskyQrState& state,
                      Matrices a);
// far[i] = 1 where gram matrix i is far from the identity, else 0.
void launch_find_far(CudaEngine& engine, int32_t* far, ConstMatrices gram);
// No hope for those.
void launch_give_up(CudaEngine& engine, const CholeskyQrState& state,
                    const int32_t* far);
// After a factorisation: its failures, and the diagonal as distances.
void launch_take_factor(CudaEngine& engine, const CholeskyQrState& state,
                        const int32_t* info, ConstMatrices factor);
// No hope where a distance is not above `noise`.
void launch_require_distance(CudaEngine& engine, const CholeskyQrState& state,
                             double noise);

}  // namespace canzona
