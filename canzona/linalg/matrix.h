// Number formats of matrices in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "canzona/base/check.h"
#include "canzona/base/dtype.h"

namespace canzona {

// DTypeOf<float>::value, for code written once for both types.
template <class Real>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFp64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFp32;
};

// Views of matrices and of batches of equal shape. A view owns nothing; its
// memory must be on the device of the engine that works on it.
//
//   Matrices w = matrices(weights.data(), 768, 2048);        // one matrix
//   Matrices b = matrices(stack.data(), 128, 512, 16);       // sixteen
//   engine.product(c, 1.0, a, Op::kNone, b, Op::kTranspose, 0.0);

// Row-major matrices of equal shape, `matrix_stride` elements apart or, with
// `places`, at those addresses (then `data` is the first of them). A batch of
// one is a matrix. `Byte` is std::byte or const std::byte. With `skips`, other
// things lie between groups of rows, as where the rows of fused matrices take
// turns. Only Load and Store (operand.h) accept scattered matrices and groups.
template <class Byte>
struct BasicMatrices {
  Byte* data = nullptr;
  DType dtype = DType::kFp32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t count = 1;
  int64_t matrix_stride = 0;
  Byte* const* places = nullptr;  // in host memory, one per matrix
  // The elements between two groups of `group_rows` rows each, in host memory,
  // one number per matrix.
  const int64_t* skips = nullptr;
  int64_t group_rows = 0;

  int64_t elements() const { return rows * cols; }  // per matrix
  bool contiguous() const { return row_stride == cols; }

  BasicMatrices at(int64_t i) const {
    BasicMatrices one = *this;
    one.data = places != nullptr ? places[i]
                                 : data + i * matrix_stride * size_of(dtype);
    one.places = nullptr;
    if (skips != nullptr) one.skips = skips + i;
    one.count = 1;
    return one;
  }
  // Returns matrices [begin, begin + size).
  BasicMatrices part(int64_t begin, int64_t size) const {
    BasicMatrices some = at(begin);
    some.count = size;
    if (places != nullptr) some.places = places + begin;
    return some;
  }

  // Returns the first element, typed.
  template <class Real>
  auto* as() const {
    CANZONA_CHECK_EQ(static_cast<int>(dtype),
                     static_cast<int>(DTypeOf<Real>::value));
    if constexpr (std::is_const_v<Byte>)
      return reinterpret_cast<const Real*>(data);
    else
      return reinterpret_cast<Real*>(data);
  }

  // A writable view converts to a readable one.
  operator BasicMatrices<const std::byte>() const  // NOLINT: implicit
      requires(!std::is_const_v<Byte>) {
    return {data,          dtype,  rows,  cols,      row_stride, count,
            matrix_stride, places, skips, group_rows};
  }
};

using Matrices = BasicMatrices<std::byte>;
using ConstMatrices = BasicMatrices<const std::byte>;

template <class Real>
Matrices matrices(Real* data, int64_t rows, int64_t cols, int64_t count = 1) {
  return {reinterpret_cast<std::byte*>(data),
          DTypeOf<Real>::value,
          rows,
          cols,
          cols,
          count,
          rows * cols,
          nullptr};
}

template <class Real>
ConstMatrices matrices(const Real* data, int64_t rows, int64_t cols,
                       int64_t count = 1) {
  return {reinterpret_cast<const std::byte*>(data),
          DTypeOf<Real>::value,
          rows,
          cols,
          cols,
          count,
          rows * cols,
          nullptr};
}

}  // namespace canzona
