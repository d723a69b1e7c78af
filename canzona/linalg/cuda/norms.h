// Norms that stay on the device.
#pragma once

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

// norms[i] = |A_i|_F, right wherever it is a number. Takes scratch memory from
// the arena, in a scope of its own; to be called in dry runs, too.
void norms_on_device(CudaEngine& engine, double* norms, ConstMatrices a);

// sums[i·cols + j] = Σ_k a[k,j]·b[k,j] of matrix i, likewise.
void column_sums_on_device(CudaEngine& engine, double* sums, ConstMatrices a,
                           ConstMatrices b);

}  // namespace canzona
