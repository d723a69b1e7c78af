// cuSOLVER and the triangular solves of cuBLAS, for batches.
//
// Libraries may choose by how memory is aligned, and their batched forms by
// how many matrices there are. So all work is done on tidy copies, whose rows
// begin on 128-byte borders. The batched Cholesky factor of small matrices has
// the same bits for any batch; batched eigenvectors and triangular solves have
// not, so that these are done one by one, as are all large matrices.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

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

}  // namespace canzona
