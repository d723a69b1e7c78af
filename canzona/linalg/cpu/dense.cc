// Products and solves of the CPU engine.
#include "canzona/linalg/cpu/batch.h"
#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/transpose.h"

namespace canzona {

void CpuEngine::product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                        ConstMatrices b, Op op_b, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> left,
                      ConstView<Real> right, int64_t) {
        canzona::product(to, static_cast<Real>(alpha), left, op_a, right, op_b,
                         static_cast<Real>(beta));
      },
      c, a, b);
}

void CpuEngine::symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                  Op op_a, double beta) {
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> from, int64_t) {
        square_lower(to, static_cast<Real>(alpha), from, op_a,
                     static_cast<Real>(beta));
        mirror_lower(to);
      },
      c, a);
}

void CpuEngine::commuting_product(Matrices c, ConstMatrices a,
                                  ConstMatrices b) {
  for_each_matrix(
      []<class Real>(View<Real> to, ConstView<Real> left, ConstView<Real> right,
                     int64_t) {
        product_lower(to, left, right);
        mirror_lower(to);
      },
      c, a, b);
}

void CpuEngine::solve_right_transposed(Matrices b, ConstMatrices l) {
  for_each_matrix(
      []<class Real>(View<Real> right, ConstView<Real> factor, int64_t) {
        solve_lower_transposed(right, factor);
      },
      b, l);
}

}  // namespace canzona
