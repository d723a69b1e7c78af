// Transposed copies of row-major matrices, and the upper triangle made from
// the lower one. Sixteen mirrors belong to one Gram form of Newton–Schulz, so
// that their speed is felt. Any thread may call.
#pragma once

#include <cstdint>

#include "canzona/linalg/cpu/products.h"

namespace canzona {

// a[i,j] = a[j,i] for i < j.
template <class Real>
void mirror_lower(View<Real> a);

// to = fromᵀ; they do not overlap.
template <class Real>
void transpose(View<Real> to, ConstView<Real> from);

// The two above choose from these.
template <class Real>
void mirror_lower_portable(View<Real> a);
template <class Real>
void transpose_portable(View<Real> to, ConstView<Real> from);
// Only on x86_64, and only where cpu_features().avx512. Plain arguments: no
// inline function may be compiled for a CPU that others do not have.
void mirror_lower_avx512(float* a, int64_t side, int64_t stride);
void transpose_avx512(float* to, int64_t to_stride, const float* from,
                      int64_t from_stride, int64_t rows, int64_t cols);

}  // namespace canzona
