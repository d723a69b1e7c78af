// Element-wise work of the CPU engine on whole matrices.
#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/batch.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/cpu/stages/stages.h"

namespace canzona {
namespace {

// A name outside the order given would read foreign memory.
void check_order(std::span<const int64_t> order, int64_t size) {
  CANZONA_CHECK_EQ(order.size(), size, "entries of an order");
  for (int64_t from : order)
    CANZONA_CHECK(from >= 0 && from < size, "entry ", from, " of ", size);
}

}  // namespace

void CpuEngine::copy(Matrices to, ConstMatrices from) {
  check_same_shape(to, from);
  for_each_matrix(
      [](auto target, auto source, int64_t) {
        for (int64_t i = 0; i < target.rows; ++i)
          std::copy_n(source.row(i), target.cols, target.row(i));
      },
      to, from);
}

void CpuEngine::set_identity(Matrices a, double diagonal) {
  for_each_matrix(
      [diagonal]<class Real>(View<Real> one, int64_t) {
        for (int64_t i = 0; i < one.rows; ++i) {
          std::fill_n(one.row(i), one.cols, Real{0});
          if (i < one.cols) one.row(i)[i] = static_cast<Real>(diagonal);
        }
      },
      a);
}

void CpuEngine::add_diagonal(Matrices a, double value) {
  for_each_matrix(
      [value]<class Real>(View<Real> one, int64_t) {
        for (int64_t i = 0; i < std::min(one.rows, one.cols); ++i)
          one.row(i)[i] += static_cast<Real>(value);
      },
      a);
}

void CpuEngine::axpby(Matrices y, double alpha, ConstMatrices x, double beta) {
  check_same_shape(y, x);
  for_each_matrix(
      [&](auto to, auto from, int64_t) {
        for (int64_t i = 0; i < to.rows; ++i)
          cpu_axpby(run_of(to.row(i)), alpha, run_of(from.row(i)), beta,
                    to.cols);
      },
      y, x);
}

void CpuEngine::permute_columns(Matrices to, ConstMatrices from,
                                std::span<const int64_t> order) {
  check_same_shape(to, from);
  check_order(order, to.cols);
  for_each_matrix(
      [order](auto target, auto source, int64_t) {
        for (int64_t i = 0; i < target.rows; ++i)
          for (size_t j = 0; j < order.size(); ++j)
            target.row(i)[j] = source.row(i)[order[j]];
      },
      to, from);
}

void CpuEngine::permute_rows(Matrices to, ConstMatrices from,
                             std::span<const int64_t> order) {
  check_same_shape(to, from);
  check_order(order, to.rows);
  for_each_matrix(
      [order](auto target, auto source, int64_t) {
        for (int64_t i = 0; i < target.rows; ++i)
          std::copy_n(source.row(order[static_cast<size_t>(i)]), target.cols,
                      target.row(i));
      },
      to, from);
}

void CpuEngine::scale_columns(Matrices to, ConstMatrices from,
                              ConstMatrices factors) {
  check_same_shape(to, from);
  CANZONA_CHECK_EQ(factors.cols, to.cols, "factors");
  for_each_matrix(
      [](auto target, auto source, auto factor, int64_t) {
        for (int64_t i = 0; i < target.rows; ++i)
          for (int64_t j = 0; j < target.cols; ++j)
            target.row(i)[j] = source.row(i)[j] * factor.data[j];
      },
      to, from, factors);
}

void CpuEngine::scale_to_norm(Matrices a, ConstMatrices reference,
                              double epsilon) {
  for_each_matrix(
      [epsilon]<class Real>(View<Real> one, ConstView<Real> other, int64_t) {
        const double norm = frobenius_norm<Real>(one) + epsilon;
        if (norm == 0) return;  // nothing to scale, and no factor for it
        // In fp64, since the factor of a tiny matrix may be out of range.
        const double factor = frobenius_norm(other) / norm;
        for (int64_t i = 0; i < one.rows; ++i)
          for (int64_t j = 0; j < one.cols; ++j)
            one.row(i)[j] = static_cast<Real>(one.row(i)[j] * factor);
      },
      a, reference);
}

}  // namespace canzona
