// Helpers shared by the tests of this folder: matrices with gaps between rows,
// and the simplest possible fp64 arithmetic for comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "canzona/linalg/matrix.h"

namespace canzona::linalg {

// Relative to the norms of the inputs: a few dozen roundings.
template <class Real>
constexpr double tolerance() {
  return sizeof(Real) == sizeof(float) ? 3e-6 : 5e-15;
}

// A batch with `gap` elements between rows and one before the first, so that
// nothing is aligned by accident. Memory outside the matrices has a marker.
template <class Real>
class Batch {
 public:
  Batch(int64_t rows, int64_t cols, int64_t count = 1, int64_t gap = 0)
      : rows_(rows),
        cols_(cols),
        count_(count),
        stride_(cols + gap),
        offset_(gap == 0 ? 0 : 1),
        storage_(static_cast<size_t>(offset_ + count * rows * stride_), kMark) {
  }

  Matrices view() { return with_strides(matrices(first(), rows_, cols_)); }
  ConstMatrices view() const {
    return with_strides(matrices(first(), rows_, cols_));
  }
  operator Matrices() { return view(); }             // NOLINT: implicit
  operator ConstMatrices() const { return view(); }  // NOLINT: implicit

  const std::vector<Real>& storage() const { return storage_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t count() const { return count_; }

  Real& at(int64_t matrix, int64_t row, int64_t col) {
    return storage_[index(matrix, row, col)];
  }
  Real at(int64_t matrix, int64_t row, int64_t col) const {
    return storage_[index(matrix, row, col)];
  }

  // Calls set(element, matrix, row, col) for all.
  template <class Set>
  Batch& fill(const Set& set) {
    for (int64_t k = 0; k < count_; ++k)
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t j = 0; j < cols_; ++j) set(at(k, i, j), k, i, j);
    return *this;
  }

  // Between -1 and 1.
  Batch& randomise(uint32_t seed) {
    std::mt19937 bits(seed);
    return fill([&](Real& x, int64_t, int64_t, int64_t) {
      x = static_cast<Real>(bits() * 0x1p-31 - 1);
    });
  }

  // Makes every matrix symmetric from its lower triangle.
  Batch& symmetrise() {
    return fill([&](Real& x, int64_t k, int64_t i, int64_t j) {
      if (i > j) at(k, j, i) = x;
    });
  }

  bool marks_untouched() const {
    Batch copy = *this;
    copy.fill([](Real& x, int64_t, int64_t, int64_t) { x = kMark; });
    return std::all_of(copy.storage_.begin(), copy.storage_.end(),
                       [](Real x) { return x == kMark; });
  }

 private:
  static constexpr Real kMark = Real{-12345};

  size_t index(int64_t matrix, int64_t row, int64_t col) const {
    return static_cast<size_t>(offset_ + (matrix * rows_ + row) * stride_ +
                               col);
  }
  Real* first() { return storage_.data() + offset_; }
  const Real* first() const { return storage_.data() + offset_; }

  template <class View>
  View with_strides(View view) const {
    view.count = count_;
    view.row_stride = stride_;
    view.matrix_stride = rows_ * stride_;
    return view;
  }

  int64_t rows_;
  int64_t cols_;
  int64_t count_;
  int64_t stride_;
  int64_t offset_;
  std::vector<Real> storage_;
};

// One matrix in fp64.
struct Plain {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Plain(int64_t num_rows, int64_t num_cols)
      : rows(num_rows),
        cols(num_cols),
        values(static_cast<size_t>(num_rows * num_cols)) {}

  double& at(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * cols + j)];
  }
  double at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

template <class Real>
Plain plain(const Batch<Real>& batch, int64_t matrix = 0) {
  Plain result(batch.rows(), batch.cols());
  for (int64_t i = 0; i < result.rows; ++i)
    for (int64_t j = 0; j < result.cols; ++j)
      result.at(i, j) = batch.at(matrix, i, j);
  return result;
}

inline Plain transposed(const Plain& a) {
  Plain result(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) result.at(j, i) = a.at(i, j);
  return result;
}

inline Plain times(const Plain& a, const Plain& b) {
  Plain result(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.cols; ++k)
      for (int64_t j = 0; j < b.cols; ++j)
        result.at(i, j) += a.at(i, k) * b.at(k, j);
  return result;
}

// alpha·a + beta·b
inline Plain sum(double alpha, const Plain& a, double beta, const Plain& b) {
  Plain result(a.rows, a.cols);
  for (size_t i = 0; i < a.values.size(); ++i)
    result.values[i] = alpha * a.values[i] + beta * b.values[i];
  return result;
}

inline Plain identity(int64_t side) {
  Plain result(side, side);
  for (int64_t i = 0; i < side; ++i) result.at(i, i) = 1;
  return result;
}

inline double norm(const Plain& a) {
  double sum = 0;
  for (double x : a.values) sum += x * x;
  return std::sqrt(sum);
}

inline double distance(const Plain& a, const Plain& b) {
  return norm(sum(1, a, -1, b));
}

inline bool exactly_symmetric(const Plain& a) {
  return transposed(a).values == a.values;
}

// Equal bits, including NaNs and signs of zero.
template <class Real>
bool same_bits(const std::vector<Real>& a, const std::vector<Real>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0);
}

using RealTypes = testing::Types<float, double>;

}  // namespace canzona::linalg
