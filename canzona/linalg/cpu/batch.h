// Loops over the matrices of batches, typed.
#pragma once

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/matrix.h"

namespace canzona {

// work(Real{}) with the type that `dtype` names.
template <class Work>
void with_real(DType dtype, const Work& work) {
  CANZONA_CHECK(dtype == DType::kFp32 || dtype == DType::kFp64,
                "not an operation of ", to_string(dtype));
  if (dtype == DType::kFp32)
    work(float{});
  else
    work(double{});
}

inline void check_same_count(int64_t count, int64_t expected) {
  CANZONA_CHECK_EQ(count, expected, "matrices in a batch");
}

// work(View<Real>…, i) for each matrix i of the batches.
template <class Work, class First, class... Rest>
void for_each_matrix(const Work& work, First first, Rest... rest) {
  (check_same_count(rest.count, first.count), ...);
  with_real(first.dtype, [&](auto real) {
    using Real = decltype(real);
    for (int64_t i = 0; i < first.count; ++i)
      work(view_of<Real>(first.at(i)), view_of<Real>(rest.at(i))..., i);
  });
}

template <class To, class From>
void check_same_shape(const To& to, const From& from) {
  CANZONA_CHECK_EQ(to.rows, from.rows, "rows");
  CANZONA_CHECK_EQ(to.cols, from.cols, "columns");
}

}  // namespace canzona
