#include "canzona/linalg/cpu/transpose.h"

#include <algorithm>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/features.h"

namespace canzona::linalg {
namespace {

// Tiles fill whole cache lines of both sides.
constexpr int64_t kTile = 16;

}  // namespace

template <class Real>
void mirror_lower_portable(View<Real> a) {
  for (int64_t top = 0; top < a.rows; top += kTile) {
    const int64_t bottom = std::min(top + kTile, a.rows);
    for (int64_t left = 0; left <= top; left += kTile) {
      for (int64_t j = left; j < std::min(left + kTile, bottom); ++j) {
        Real* to = a.row(j);
        for (int64_t i = std::max(top, j + 1); i < bottom; ++i)
          to[i] = a.data[i * a.stride + j];
      }
    }
  }
}

template <class Real>
void transpose_portable(View<Real> to, ConstView<Real> from) {
  for (int64_t top = 0; top < from.rows; top += kTile) {
    const int64_t bottom = std::min(top + kTile, from.rows);
    for (int64_t left = 0; left < from.cols; left += kTile) {
      const int64_t right = std::min(left + kTile, from.cols);
      for (int64_t j = left; j < right; ++j)
        for (int64_t i = top; i < bottom; ++i)
          to.row(j)[i] = from.data[i * from.stride + j];
    }
  }
}

template <class Real>
void mirror_lower(View<Real> a) {
  CANZONA_CHECK_EQ(a.rows, a.cols, "square");
#if defined(__x86_64__)
  if constexpr (std::is_same_v<Real, float>) {
    if (cpu_features().avx512)
      return mirror_lower_avx512(a.data, a.rows, a.stride);
  }
#endif
  mirror_lower_portable(a);
}

template <class Real>
void transpose(View<Real> to, ConstView<Real> from) {
  CANZONA_CHECK_EQ(to.rows, from.cols, "rows");
  CANZONA_CHECK_EQ(to.cols, from.rows, "columns");
#if defined(__x86_64__)
  if constexpr (std::is_same_v<Real, float>) {
    if (cpu_features().avx512)
      return transpose_avx512(to.data, to.stride, from.data, from.stride,
                              from.rows, from.cols);
  }
#endif
  transpose_portable(to, from);
}

template void mirror_lower_portable(View<float>);
template void mirror_lower_portable(View<double>);
template void transpose_portable(View<float>, ConstView<float>);
template void transpose_portable(View<double>, ConstView<double>);
template void mirror_lower(View<float>);
template void mirror_lower(View<double>);
template void transpose(View<float>, ConstView<float>);
template void transpose(View<double>, ConstView<double>);

}  // namespace canzona::linalg
