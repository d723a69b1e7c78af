#include "canzona/rules/shampoo/roots.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {
namespace {

// A result further from a root than this is none.
constexpr double kFarFromRoot = 0.1;

double norm_of(Engine& engine, ConstMatrices a) {
  double norm = 0;
  engine.norms(a, {&norm, 1});
  return norm;
}

double max_abs_of(Engine& engine, ConstMatrices a) {
  double largest = 0;
  engine.max_abs(a, {&largest, 1});
  return largest;
}

// What is added to the diagonal.
double damping(Engine& engine, ConstMatrices a, const RootOptions& options) {
  const double floor = options.method == RootMethod::kHigher
                           ? options.abs_epsilon
                           : options.epsilon;
  if (options.rel_epsilon == 0) return floor;
  return std::max(floor, options.rel_epsilon * norm_of(engine, a));
}

// Lifts eigenvalues (ascending) that rounding left below what the damping
// promises, then takes each to -exponent/2.
template <class Real>
void half_powers(Real* values, int64_t count, double damping, bool added,
                 double exponent) {
  const double smallest = static_cast<double>(values[0]);
  double lift = 0;
  if (!added) lift = damping - std::min(smallest, 0.0);
  if (added && smallest < damping) lift = damping - smallest;
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]) + lift;
    values[i] = static_cast<Real>(std::pow(value, -exponent / 2));
  }
}

// With Y = Q·diag(λ^(-e/2)) the root is Y·Yᵀ, a triangle and symmetric.
RootStatus by_eigenvectors(Engine& engine, Matrices x, ConstMatrices a,
                           double exponent, const RootOptions& options) {
  const int64_t d = a.rows;
  const Matrices q = engine.arena().matrices(a.dtype, d, d);
  const Matrices y = engine.arena().matrices(a.dtype, d, d);
  const Matrices values = engine.arena().matrices(a.dtype, 1, d);
  const double added = damping(engine, a, options);
  engine.copy(q, a);
  if (options.perturb_before) engine.add_diagonal(q, added);
  bool succeeded = false;
  engine.eigh(q, values, {&succeeded, 1});
  if (!succeeded)
    return {.succeeded = false,
            .reason = "the eigendecomposition did not converge"};
  if (a.dtype == DType::kFp64)
    half_powers(values.as<double>(), d, added, options.perturb_before,
                exponent);
  else
    half_powers(values.as<float>(), d, added, options.perturb_before, exponent);
  engine.scale_columns(y, q, values);
  engine.symmetric_product(x, 1.0, y, Op::kNone, 0.0);
  return {};
}

// X and M = B·X^p, both polynomials of B, while M is driven to the identity.
class CoupledIteration {
 public:
  // Starts at X = z^(1/p)·I.
  CoupledIteration(Engine& engine, ConstMatrices b, double z, int64_t p)
      : engine_(engine),
        p_(p),
        x_(like(b)),
        m_(like(b)),
        residual_(like(b)),
        factor_(like(b)),
        spare_(like(b)) {
    engine_.set_identity(x_, std::pow(z, 1.0 / static_cast<double>(p)));
    engine_.axpby(m_, z, b, 0.0);
    measure();
  }

  const Matrices& x() const { return x_; }
  double error() const { return error_; }

  // X = X·P and M = M·P^p with P the first `order` terms of the series of
  // M^(-1/p) about the identity.
  void advance(int order) {
    sum_series(order);
    multiply(x_, factor_);
    raise(residual_, factor_, p_);
    multiply(m_, residual_);
    measure();
  }

  // target = base^power; both outlive the call, target is another matrix.
  void raise(Matrices& target, const Matrices& base, int64_t power) {
    engine_.copy(target, base);
    int bit = 62;
    while ((power >> bit & 1) == 0) --bit;
    while (bit-- > 0) {
      engine_.symmetric_product(spare_, 1.0, target, Op::kNone, 0.0);
      std::swap(spare_, target);
      if ((power >> bit & 1) != 0) multiply(target, base);
    }
  }

  // The largest entry of B·X^p - I, from scratch.
  double true_error(ConstMatrices b) {
    raise(residual_, x_, p_);
    engine_.commuting_product(spare_, b, residual_);
    engine_.add_diagonal(spare_, -1.0);
    return max_abs_of(engine_, spare_);
  }

 private:
  Matrices like(ConstMatrices b) {
    return engine_.arena().matrices(b.dtype, b.rows, b.cols);
  }

  void multiply(Matrices& target, const Matrices& by) {
    engine_.commuting_product(spare_, target, by);
    std::swap(spare_, target);
  }

  // residual = I - M.
  void measure() {
    engine_.axpby(residual_, -1.0, m_, 0.0);
    engine_.add_diagonal(residual_, 1.0);
    error_ = max_abs_of(engine_, residual_);
  }

  // By Horner's rule; term i has the coefficient Π (1 + (j-1)p) / (jp), j <= i.
  void sum_series(int order) {
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

  Engine& engine_;
  int64_t p_;
  Matrices x_, m_, residual_, factor_, spare_;
  double error_ = 0;
};

Matrices damped(Engine& engine, ConstMatrices a, const RootOptions& options) {
  const Matrices b = engine.arena().matrices(a.dtype, a.rows, a.cols);
  engine.copy(b, a);
  engine.add_diagonal(b, damping(engine, a, options));
  return b;
}

RootStatus failure(const char* reason, int64_t iterations, double error) {
  return {false, reason, iterations, error};
}

constexpr const char* kSingular = "the matrix is zero and nothing is added";
constexpr const char* kAstray = "the coupled iteration did not come near";

// z makes the largest eigenvalue of M at most (p+1)/2, where Newton converges.
RootStatus by_newton(Engine& engine, Matrices x, ConstMatrices a, int64_t p,
                     const RootOptions& options) {
  const Matrices b = damped(engine, a, options);
  const double norm = norm_of(engine, b);
  if (norm == 0) return failure(kSingular, 0, 0);
  CoupledIteration iteration(engine, b, static_cast<double>(p + 1) / (2 * norm),
                             p);
  int64_t count = 0;
  for (;
       iteration.error() > options.tolerance && count < options.max_iterations;
       ++count)
    iteration.advance(2);
  if (!(iteration.error() <= kFarFromRoot))
    return failure(kAstray, count, iteration.error());
  engine.copy(x, iteration.x());
  return {true, "", count, iteration.error()};
}

// One step of Newton's method brings M to where more terms converge. Ends
// early where rounding stops the progress.
RootStatus by_higher_order(Engine& engine, Matrices x, ConstMatrices a,
                           InversePower power, const RootOptions& options) {
  const Matrices b = damped(engine, a, options);
  double trace = 0;
  engine.traces(b, {&trace, 1});
  if (trace == 0) return failure(kSingular, 0, 0);
  CoupledIteration iteration(engine, b, 1 / trace, power.p);
  iteration.advance(2);
  int64_t count = 1;
  bool stalled = false;
  while (iteration.error() > options.tolerance &&
         count < options.max_iterations && !stalled) {
    const double before = iteration.error();
    iteration.advance(options.order);
    ++count;
    const double after = iteration.error();
    stalled = after > 1.2 * before || (after == before && before < 1e-3);
  }
  const double error = iteration.true_error(b);
  if (!(error <= kFarFromRoot)) return failure(kAstray, count, error);
  Matrices result = b;
  iteration.raise(result, iteration.x(), power.q);
  engine.copy(x, result);
  return {true, "", count, iteration.error()};
}

}  // namespace

RootStatus inverse_root(Engine& engine, Matrices x, ConstMatrices a,
                        InversePower power, const RootOptions& options) {
  const Arena::Scope scope(engine.arena());
  switch (options.method) {
    case RootMethod::kEigen:
      return by_eigenvectors(engine, x, a, power.exponent(), options);
    case RootMethod::kNewton:
      CANZONA_CHECK_EQ(power.q, 1, "Newton's method gives A^(-1/p)");
      return by_newton(engine, x, a, power.p, options);
    case RootMethod::kHigher:
      break;
  }
  return by_higher_order(engine, x, a, power, options);
}

}  // namespace canzona
