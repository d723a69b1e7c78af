// Maps a DType to a type, and checks that views match.
#pragma once

#include "canzona/base/check.h"
#include "canzona/linalg/matrix.h"

namespace canzona {

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

}  // namespace canzona
