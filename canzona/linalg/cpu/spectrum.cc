// Eigenvalues on a CPU: their order, and powers of them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/batch.h"
#include "canzona/linalg/cpu/cpu_engine.h"

namespace canzona {

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

}  // namespace canzona
