#include "canzona/rules/shampoo/coupled_iteration.h"

#include <cmath>
#include <utility>

namespace canzona {

CoupledIteration::CoupledIteration(Engine& engine, ConstMatrices b,
                                   std::span<const double> z, int64_t p)
    : engine_(engine),
      p_(p),
      x_(like(b)),
      m_(like(b)),
      residual_(like(b)),
      factor_(like(b)),
      spare_(like(b)),
      errors_(b.count) {
  PerTensor<double> starts(b.count);
  for (int64_t i = 0; i < b.count; ++i)
    starts[i] =
        std::pow(z[static_cast<size_t>(i)], 1.0 / static_cast<double>(p));
  engine_.set_identity(x_, starts.span());
  engine_.axpby(m_, z, b, 0.0);
  measure();
}

void CoupledIteration::advance(int order) {
  sum_series(order);
  multiply(x_, factor_);
  raise(residual_, factor_, p_);
  multiply(m_, residual_);
  measure();
}

void CoupledIteration::raise(Matrices& target, const Matrices& base,
                             int64_t power) {
  engine_.copy(target, base);
  int bit = 62;
  while ((power >> bit & 1) == 0) --bit;
  while (bit-- > 0) {
    engine_.symmetric_product(spare_, 1.0, target, Op::kNone, 0.0);
    std::swap(spare_, target);
    if ((power >> bit & 1) != 0) multiply(target, base);
  }
}

PerTensor<double> CoupledIteration::true_errors(ConstMatrices b, Matrices x) {
  raise(residual_, x, p_);
  engine_.commuting_product(spare_, b, residual_);
  engine_.add_diagonal(spare_, -1.0);
  PerTensor<double> errors(b.count);
  engine_.max_abs(spare_, errors.span());
  return errors;
}

Matrices CoupledIteration::like(ConstMatrices b) {
  return engine_.arena().matrices(b.dtype, b.rows, b.cols, b.count);
}

void CoupledIteration::multiply(Matrices& target, const Matrices& by) {
  engine_.commuting_product(spare_, target, by);
  std::swap(spare_, target);
}

// residual = I - M.
void CoupledIteration::measure() {
  engine_.axpby(residual_, -1.0, m_, 0.0);
  engine_.add_diagonal(residual_, 1.0);
  engine_.max_abs(residual_, errors_.span());
}

// By Horner's rule; term i has the coefficient Π (1 + (j-1)p) / (jp), j <= i.
void CoupledIteration::sum_series(int order) {
  const auto p = static_cast<double>(p_);
  const auto coefficient = [&](int i) {
    double product = 1;
    for (int j = 1; j <= i; ++j) product *= (1 + (j - 1) * p) / (j * p);
    return product;
  };
  engine_.axpby(factor_, coefficient(order - 1), residual_, 0.0);
  for (int i = order - 2; i >= 0; --i) {
    engine_.add_diagonal(factor_, coefficient(i));
    if (i > 0) multiply(factor_, residual_);
  }
}

}  // namespace canzona
