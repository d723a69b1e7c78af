// Element-wise work of the CPU engine on whole matrices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/reductions.h"
#include "canzona/linalg/cpu/stages/stages.h"
#include "canzona/linalg/cpu/transpose.h"
#include "canzona/linalg/memory.h"

namespace canzona::linalg {
namespace {

// An index outside the matrix would read foreign memory.
void check_orders(ConstOrders orders, int64_t size, int64_t matrices) {
  CANZONA_CHECK_EQ(orders.length, size, "entries of an order");
  CANZONA_CHECK(orders.count > 0 && matrices % orders.count == 0, matrices,
                " matrices in ", orders.count, " orders");
  for (int64_t i = 0; i < orders.length * orders.count; ++i)
    CANZONA_CHECK(orders.data[i] >= 0 && orders.data[i] < size, "entry ",
                  orders.data[i], " of ", size);
}

// Returns the order of matrix i of this many.
const int64_t* order_of(ConstOrders orders, int64_t i, int64_t matrices) {
  return orders.data + i * orders.count / matrices * orders.length;
}

// Uses fp64, because the factor of a tiny matrix may be out of range.
template <class Real>
void scale_in_fp64(View<Real> one, double factor) {
  for (int64_t i = 0; i < one.rows; ++i)
    for (int64_t j = 0; j < one.cols; ++j)
      one.row(i)[j] = static_cast<Real>(one.row(i)[j] * factor);
}

// One of the two must be fp32.
void convert_bf16(Matrices to, ConstMatrices from) {
  const DType other = to.dtype == DType::kBf16 ? from.dtype : to.dtype;
  CANZONA_CHECK(other == DType::kFp32, "conversion of ", to_string(from.dtype),
                " to ", to_string(to.dtype));
  const bool flat = to.contiguous() && from.contiguous();
  const int64_t rows = flat ? std::min<int64_t>(to.rows, 1) : to.rows;
  const int64_t cols = flat ? to.elements() : to.cols;
  for (int64_t k = 0; k < to.count; ++k)
    for (int64_t i = 0; i < rows; ++i) {
      std::byte* t = to.at(k).data + i * to.row_stride * size_of(to.dtype);
      const std::byte* f =
          from.at(k).data + i * from.row_stride * size_of(from.dtype);
      if (to.dtype == DType::kBf16)
        cpu_round_to_bf16(reinterpret_cast<uint16_t*>(t),
                          reinterpret_cast<const float*>(f), cols);
      else
        cpu_widen_bf16(reinterpret_cast<float*>(t),
                       reinterpret_cast<const uint16_t*>(f), cols);
    }
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

void CpuEngine::convert(Matrices to, ConstMatrices from) {
  check_same_shape(to, from);
  check_same_count(to.count, from.count);
  if (to.dtype == DType::kBf16 || from.dtype == DType::kBf16)
    return convert_bf16(to, from);
  with_real(to.dtype, [&]<class To>(To) {
    with_real(from.dtype, [&]<class From>(From) {
      for (int64_t k = 0; k < to.count; ++k)
        for (int64_t i = 0; i < to.rows; ++i)
          std::transform(from.at(k).as<From>() + i * from.row_stride,
                         from.at(k).as<From>() + i * from.row_stride + to.cols,
                         to.at(k).as<To>() + i * to.row_stride,
                         [](From x) { return static_cast<To>(x); });
    });
  });
}

void CpuEngine::set_identity(Matrices a, std::span<const double> diagonals) {
  CANZONA_CHECK_EQ(diagonals.size(), a.count, "diagonals");
  for_each_matrix(
      [diagonals]<class Real>(View<Real> one, int64_t k) {
        const auto diagonal =
            static_cast<Real>(diagonals[static_cast<size_t>(k)]);
        for (int64_t i = 0; i < one.rows; ++i) {
          std::fill_n(one.row(i), one.cols, Real{0});
          if (i < one.cols) one.row(i)[i] = diagonal;
        }
      },
      a);
}

void CpuEngine::add_diagonal(Matrices a, std::span<const double> values) {
  CANZONA_CHECK_EQ(values.size(), a.count, "diagonals");
  for_each_matrix(
      [values]<class Real>(View<Real> one, int64_t k) {
        const auto value = static_cast<Real>(values[static_cast<size_t>(k)]);
        for (int64_t i = 0; i < std::min(one.rows, one.cols); ++i)
          one.row(i)[i] += value;
      },
      a);
}

void CpuEngine::axpby(Matrices y, std::span<const double> alphas,
                      ConstMatrices x, double beta) {
  check_same_shape(y, x);
  CANZONA_CHECK_EQ(alphas.size(), y.count, "factors");
  for_each_matrix(
      [&](auto to, auto from, int64_t k) {
        for (int64_t i = 0; i < to.rows; ++i)
          cpu_axpby(run_of(to.row(i)), alphas[static_cast<size_t>(k)],
                    run_of(from.row(i)), beta, to.cols);
      },
      y, x);
}

void CpuEngine::permute_columns(Matrices to, ConstMatrices from,
                                ConstOrders orders) {
  check_same_shape(to, from);
  check_orders(orders, to.cols, to.count);
  for_each_matrix(
      [&](auto target, auto source, int64_t k) {
        const int64_t* order = order_of(orders, k, to.count);
        for (int64_t i = 0; i < target.rows; ++i)
          for (int64_t j = 0; j < target.cols; ++j)
            target.row(i)[j] = source.row(i)[order[j]];
      },
      to, from);
}

void CpuEngine::permute_rows(Matrices to, ConstMatrices from,
                             ConstOrders orders) {
  check_same_shape(to, from);
  check_orders(orders, to.rows, to.count);
  for_each_matrix(
      [&](auto target, auto source, int64_t k) {
        const int64_t* order = order_of(orders, k, to.count);
        for (int64_t i = 0; i < target.rows; ++i)
          std::copy_n(source.row(order[i]), target.cols, target.row(i));
      },
      to, from);
}

void CpuEngine::take_triangle(Run triangle, ConstMatrices square) {
  for_each_matrix(
      [&]<class Real>(View<const Real> from, int64_t) {
        auto* to = reinterpret_cast<Real*>(triangle.data);
        for (int64_t i = 0; i < from.rows; ++i)
          to = std::copy_n(from.row(i), i + 1, to);
      },
      square);
}

void CpuEngine::put_triangle(Matrices square, ConstRun triangle) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, int64_t) {
        const auto* from = reinterpret_cast<const Real*>(triangle.data);
        for (int64_t i = 0; i < to.rows; from += ++i)
          std::copy_n(from, i + 1, to.row(i));
        mirror_lower(to);
      },
      square);
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
        if (norm == 0) return;  // nothing to scale, and no valid factor
        scale_in_fp64(one, frobenius_norm(other) / norm);
      },
      a, reference);
}

void CpuEngine::limit_norms(Matrices a, double norm, double epsilon) {
  for_each_matrix(
      [norm, epsilon]<class Real>(View<Real> one, int64_t) {
        const double own = frobenius_norm<Real>(one) + epsilon;
        if (own > norm) scale_in_fp64(one, norm / own);
      },
      a);
}

// Eigenvalues on a CPU: sorting them, and powers of them.

void CpuEngine::sort(Orders orders, ConstMatrices values, bool falling) {
  CANZONA_CHECK_EQ(orders.count, values.count, "orders");
  CANZONA_CHECK_EQ(orders.length, values.cols, "entries of an order");
  for_each_matrix(
      [&](auto one, int64_t k) {
        int64_t* order = orders.data + k * orders.length;
        const auto* value = one.data;
        std::iota(order, order + orders.length, int64_t{0});
        std::sort(order, order + orders.length, [&](int64_t a, int64_t b) {
          if (value[a] == value[b]) return a < b;
          return falling ? value[a] > value[b] : value[a] < value[b];
        });
      },
      values);
}

void CpuEngine::raise_values(Matrices values, std::span<const double> floors,
                             bool shift, double exponent) {
  CANZONA_CHECK_EQ(floors.size(), values.count, "floors");
  if (values.cols == 0) return;
  for_each_matrix(
      [&]<class Real>(View<Real> one, int64_t k) {
        const double floor = floors[static_cast<size_t>(k)];
        const auto smallest = static_cast<double>(one.data[0]);
        double lift = smallest < floor ? floor - smallest : 0;
        if (shift) lift = floor - std::min(smallest, 0.0);
        for (int64_t i = 0; i < one.cols; ++i)
          one.data[i] = static_cast<Real>(
              std::pow(static_cast<double>(one.data[i]) + lift, exponent));
      },
      values);
}

void CpuEngine::inverse_roots(Matrices to, ConstMatrices from, double scale,
                              double floor) {
  check_same_shape(to, from);
  for_each_matrix(
      [&]<class Real>(View<Real> root, ConstView<Real> value, int64_t) {
        for (int64_t i = 0; i < root.cols; ++i)
          root.data[i] = static_cast<Real>(
              1 / std::sqrt(scale * std::max(static_cast<double>(value.data[i]),
                                             floor)));
      },
      to, from);
}

namespace {

class CpuMemoryOps final : public MemoryOps {
 public:
  bool is_host() const override { return true; }
  std::byte* allocate(int64_t bytes) const override {
    return host_memory().allocate(bytes);
  }
  void release(std::byte* memory) const override {
    host_memory().release(memory);
  }

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  void add_fp32(float* sum, const float* a, const float* b,
                int64_t count) const override {
    cpu_add(sum, a, b, count);
  }

  void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    for (int64_t i = 0; i < count; ++i)
      sum[i] = static_cast<int64_t>(static_cast<uint64_t>(a[i]) +
                                    static_cast<uint64_t>(b[i]));
  }

  void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    for (int64_t i = 0; i < count; ++i) larger[i] = std::max(a[i], b[i]);
  }

  void to_bf16(uint16_t* to, const float* from, int64_t count) const override {
    cpu_round_to_bf16(to, from, count);
  }

  void from_bf16(float* to, const uint16_t* from,
                 int64_t count) const override {
    cpu_widen_bf16(to, from, count);
  }
};

}  // namespace

}  // namespace canzona::linalg

namespace canzona {
using namespace linalg;

const MemoryOps& cpu_memory_ops() {
  static const CpuMemoryOps ops;
  return ops;
}

}  // namespace canzona
