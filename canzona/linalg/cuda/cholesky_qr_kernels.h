// Steps of Cholesky QR on a batch; for each matrix whether it still has hope,
// the lengths of its columns, and how far they were from those before them.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

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
