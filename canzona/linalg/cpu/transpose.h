// Transposes row-major matrices, and mirrors the lower triangle to the upper
// one. One Gram form of Newton–Schulz has sixteen mirrors, so their speed
// matters. Any thread may call.
#pragma once

#include <cstdint>

#include "canzona/linalg/cpu/products.h"

namespace canzona::linalg {

// a[i,j] = a[j,i] for i < j.
template <class Real>
void mirror_lower(View<Real> a);

// to = fromᵀ; they must not overlap.
template <class Real>
void transpose(View<Real> to, ConstView<Real> from);

// The two above choose from these.
template <class Real>
void mirror_lower_portable(View<Real> a);
template <class Real>
void transpose_portable(View<Real> to, ConstView<Real> from);
// Only on x86_64, and only if cpu_features().avx512. Arguments are plain, so
// that no inline function is compiled for a CPU that others do not have.
void mirror_lower_avx512(float* a, int64_t side, int64_t stride);
void transpose_avx512(float* to, int64_t to_stride, const float* from,
                      int64_t from_stride, int64_t rows, int64_t cols);

}  // namespace canzona::linalg
