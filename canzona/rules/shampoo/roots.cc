#include "canzona/rules/shampoo/roots.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {

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

namespace {

// A result with a larger error does not count as a root.
constexpr double kFarFromRoot = 0.1;

constexpr const char* kNoVectors = "the eigendecomposition did not converge";
constexpr const char* kSingular = "the matrix is zero and not damped";
constexpr const char* kAstray = "the coupled iteration did not converge";

using Statuses = std::span<RootStatus>;

RootStatus& at(Statuses statuses, int64_t i) {
  return statuses[static_cast<size_t>(i)];
}

// Returns the damping added to each diagonal.
PerTensor<double> damping(Engine& engine, ConstMatrices a,
                          const RootOptions& options) {
  const double floor = options.method == RootMethod::kHigher
                           ? options.abs_epsilon
                           : options.epsilon;
  PerTensor<double> added(a.count, floor);
  if (options.rel_epsilon == 0) return added;
  PerTensor<double> norms(a.count);
  engine.norms(a, norms.span());
  for (int64_t i = 0; i < a.count; ++i)
    added[i] = std::max(floor, options.rel_epsilon * norms[i]);
  return added;
}

// Raises ascending eigenvalues, one row of them, to a negative power; those
// that count as 0 become 0. Runs on the host: eigenvalues are few, and the
// device has been synchronized anyway.
template <class Real>
void raise_nonzero(Engine& engine, Matrices row, double exponent,
                   const RootOptions& options) {
  constexpr int64_t kMost = 256;
  Real values[kMost];
  const auto with_values = [&](int64_t begin, int64_t count, auto move) {
    move(reinterpret_cast<std::byte*>(values),
         row.data + begin * size_of(row.dtype), count * size_of(row.dtype));
  };
  const auto get = [&](std::byte* here, std::byte* there, int64_t bytes) {
    engine.download(here, there, bytes);
  };
  const auto put = [&](std::byte* here, std::byte* there, int64_t bytes) {
    engine.upload(there, here, bytes);
  };
  with_values(row.cols - 1, 1, get);
  const double largest = std::max(0.0, static_cast<double>(values[0]));
  const double rtol = options.rank_rtol >= 0
                          ? options.rank_rtol
                          : std::numeric_limits<Real>::epsilon() *
                                static_cast<double>(row.cols);
  const double zero = std::max(rtol * largest, options.rank_atol);
  for (int64_t begin = 0; begin < row.cols; begin += kMost) {
    const int64_t count = std::min(kMost, row.cols - begin);
    with_values(begin, count, get);
    for (Real& value : std::span(values, static_cast<size_t>(count)))
      value = value > zero ? static_cast<Real>(
                                 std::pow(static_cast<double>(value), exponent))
                           : Real{0};
    with_values(begin, count, put);
  }
}

void raise_nonzero_values(Engine& engine, Matrices values, double exponent,
                          const RootOptions& options) {
  for (int64_t i = 0; i < values.count && values.cols > 0; ++i)
    if (values.dtype == DType::kFp64)
      raise_nonzero<double>(engine, values.at(i), exponent, options);
    else
      raise_nonzero<float>(engine, values.at(i), exponent, options);
}

// With Y = Q·diag(λ^(-e/2)) the root is Y·Yᵀ, one triangle and symmetric.
// Eigenvalues that rounding left below the damping are raised to it.
void by_eigenvectors(Engine& engine, Matrices x, ConstMatrices a,
                     double exponent, const RootOptions& options,
                     Statuses statuses) {
  Arena& arena = engine.arena();
  const int64_t d = a.rows;
  const Matrices q = arena.matrices(a.dtype, d, d, a.count);
  const Matrices y = arena.matrices(a.dtype, d, d, a.count);
  const Matrices values = arena.matrices(a.dtype, 1, d, a.count);
  const bool pseudo = options.method == RootMethod::kPseudo;
  PerTensor<double> added(a.count);
  engine.copy(q, a);
  if (!pseudo) {
    added = damping(engine, a, options);
    if (options.perturb_before) engine.add_diagonal(q, added.span());
  }
  PerTensor<bool> succeeded(a.count);
  engine.eigh(q, values, succeeded.span());
  if (pseudo)
    raise_nonzero_values(engine, values, -exponent / 2, options);
  else
    engine.raise_values(values, added.span(), !options.perturb_before,
                        -exponent / 2);
  engine.scale_columns(y, q, values);
  engine.symmetric_product(x, 1.0, y, Op::kNone, 0.0);
  for (int64_t i = 0; i < a.count; ++i)
    if (!succeeded[i]) at(statuses, i) = {false, kNoVectors, 0, 0};
}

Matrices damped_copy(Engine& engine, ConstMatrices a,
                     const RootOptions& options) {
  const Matrices b = engine.arena().matrices(a.dtype, a.rows, a.cols, a.count);
  engine.copy(b, a);
  engine.add_diagonal(b, damping(engine, a, options).span());
  return b;
}

// The largest row sum of magnitudes of each symmetric matrix, an upper bound of
// its eigenvalues; at least the floor. |b| is computed as b·sign(b) and the
// sign as b/sqrt(b²), after scaling the largest entry to 1: entries whose
// squares underflow do not matter.
PerTensor<double> largest_row_sums(Engine& engine, ConstMatrices b,
                                   double floor) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t elements = b.count * b.rows * b.cols;
  const int64_t bytes = elements * size_of(b.dtype);
  const Run scaled{arena.take(bytes), b.dtype};
  const Run signs{arena.take(bytes), b.dtype};
  const Run squares{arena.take(bytes), b.dtype};
  const auto each = [&](Run run) {
    return as_matrices(run, b.rows, b.cols, b.count);
  };
  const Matrices sums = arena.matrices(b.dtype, 1, b.cols, b.count);
  constexpr double kVanishing = 1e-30;  // compared with any floor
  PerTensor<double> largest(b.count), inverse(b.count, 1);
  engine.max_abs(b, largest.span());
  for (int64_t i = 0; i < b.count; ++i)
    if (largest[i] > kVanishing) inverse[i] = 1 / largest[i];
  engine.axpby(each(scaled), inverse.span(), b, 0.0);
  engine.set_zero(squares.data, bytes);
  AdamCoefficients sign;  // g / (sqrt(g²) + ε)
  sign.from_moment = 0;
  sign.from_grad = 1;
  sign.epsilon = kVanishing;
  engine.adam(scaled, {}, squares, signs, sign, elements);
  engine.column_dots(sums, each(scaled), each(signs));
  PerTensor<double> found(b.count);
  engine.max_abs(sums, found.span());
  for (int64_t i = 0; i < b.count; ++i)
    found[i] = std::max(found[i] * largest[i], floor);
  return found;
}

void by_cans(Engine& engine, Matrices x, ConstMatrices a,
             const RootOptions& options) {
  Arena& arena = engine.arena();
  const Matrices y = damped_copy(engine, a, options);
  PerTensor<double> sizes = largest_row_sums(engine, y, kCansLeastSize);
  PerTensor<double> scales(a.count);
  for (int64_t i = 0; i < a.count; ++i) scales[i] = 1 / sizes[i];
  const auto room = [&] {
    return arena.matrices(a.dtype, a.rows, a.cols, a.count);
  };
  const Matrices z = room(), p = room(), product = room();
  engine.axpby(p, scales.span(), y, 0.0);
  engine.copy(y, p);
  // All of P is computed: its rounding errors are not symmetric and must be
  // kept, or errors of the iteration grow (by 1e5 in fp32).
  const auto renew_p = [&] {
    engine.product(p, 1.0, z, Op::kNone, y, Op::kNone, 0.0);
  };
  const auto step_z = [&](const CansStep& step) {
    engine.commuting_product(product, p, z);
    engine.axpby(z, step.a, product, step.b);
  };
  const auto step_y = [&](const CansStep& step) {
    engine.commuting_product(product, y, p);
    engine.axpby(y, step.a, product, step.b);
  };
  const std::span<const CansStep> steps = cans_steps();
  const CansStep& first = steps[0];  // from Z = I
  engine.axpby(z, first.a, p, 0.0);
  engine.add_diagonal(z, first.b);
  step_y(first);
  const size_t last = steps.size() - 1;
  for (size_t i = 1; i < last; ++i) {
    renew_p();
    step_z(steps[i]);
    step_y(steps[i]);
  }
  renew_p();
  step_z(steps[last]);
  for (int64_t i = 0; i < a.count; ++i) scales[i] = std::sqrt(scales[i]);
  engine.axpby(x, scales.span(), z, 0.0);
}

// A coupled iteration on matrices that may need different numbers of steps.
class RootSearch {
 public:
  RootSearch(Engine& engine, Matrices x, ConstMatrices a, int64_t p,
             const RootOptions& options, Statuses statuses)
      : engine_(engine),
        x_(x),
        p_(p),
        options_(options),
        statuses_(statuses),
        b_(damped_copy(engine, a, options)),
        going_(a.count, true) {}

  void by_newton();
  void by_higher_order(int64_t q);

 private:
  // numerator/sizes; a matrix of size zero has no root.
  PerTensor<double> scales(double numerator, PerTensor<double>& sizes);
  bool any_going() const;
  // Ends the iterations for which `ends` is true, keeping their X.
  template <class Ends>
  void end_where(const CoupledIteration& iteration, int64_t count,
                 const Ends& ends);
  void refuse_far_ones(const PerTensor<double>& errors);

  Engine& engine_;
  Matrices x_;
  int64_t p_;
  const RootOptions& options_;
  Statuses statuses_;
  Matrices b_;
  PerTensor<bool> going_;
};

PerTensor<double> RootSearch::scales(double numerator,
                                     PerTensor<double>& sizes) {
  PerTensor<double> scales(b_.count, 1);
  for (int64_t i = 0; i < b_.count; ++i) {
    if (sizes[i] != 0) {
      scales[i] = numerator / sizes[i];
      continue;
    }
    going_[i] = false;
    at(statuses_, i) = {false, kSingular, 0, 0};
  }
  return scales;
}

bool RootSearch::any_going() const {
  bool any = false;
  for (int64_t i = 0; i < b_.count; ++i) any = any || going_[i];
  return any;
}

template <class Ends>
void RootSearch::end_where(const CoupledIteration& iteration, int64_t count,
                           const Ends& ends) {
  PerTensor<bool> ended(b_.count);
  for (int64_t i = 0; i < b_.count; ++i) {
    if (!going_[i] || !ends(i)) continue;
    ended[i] = true;
    going_[i] = false;
    at(statuses_, i) = {true, "", count, iteration.errors()[i]};
  }
  for_each_run(
      b_.count, [&](int64_t i) { return ended[i]; },
      [&](int64_t begin, int64_t size) {
        engine_.copy(x_.part(begin, size), iteration.x().part(begin, size));
      });
}

void RootSearch::refuse_far_ones(const PerTensor<double>& errors) {
  for (int64_t i = 0; i < b_.count; ++i) {
    RootStatus& status = at(statuses_, i);
    if (status.succeeded && !(errors[i] <= kFarFromRoot))
      status = {false, kAstray, status.iterations, errors[i]};
  }
}

// z makes the largest eigenvalue of M at most (p+1)/2, so that Newton
// converges.
void RootSearch::by_newton() {
  PerTensor<double> norms(b_.count);
  engine_.norms(b_, norms.span());
  PerTensor<double> z = scales(static_cast<double>(p_ + 1) / 2, norms);
  CoupledIteration iteration(engine_, b_, z.span(), p_);
  for (int64_t count = 0;; ++count) {
    end_where(iteration, count, [&](int64_t i) {
      return !(iteration.errors()[i] > options_.tolerance) ||
             count >= options_.max_iterations;
    });
    if (!any_going()) break;
    iteration.advance(2);
  }
  PerTensor<double> errors(b_.count);
  for (int64_t i = 0; i < b_.count; ++i) errors[i] = at(statuses_, i).error;
  refuse_far_ones(errors);
}

// One step of Newton's method brings M to where more terms converge. Ends early
// once rounding stops the progress.
void RootSearch::by_higher_order(int64_t q) {
  PerTensor<double> traces(b_.count);
  engine_.traces(b_, traces.span());
  PerTensor<double> z = scales(1, traces);
  CoupledIteration iteration(engine_, b_, z.span(), p_);
  iteration.advance(2);
  PerTensor<bool> stalled(b_.count);
  for (int64_t count = 1;; ++count) {
    const PerTensor<double> before = iteration.errors();
    end_where(iteration, count, [&](int64_t i) {
      return !(before[i] > options_.tolerance) ||
             count >= options_.max_iterations || stalled[i];
    });
    if (!any_going()) break;
    iteration.advance(options_.order);
    for (int64_t i = 0; i < b_.count; ++i) {
      const double after = iteration.errors()[i];
      stalled[i] =
          after > 1.2 * before[i] || (after == before[i] && before[i] < 1e-3);
    }
  }
  refuse_far_ones(iteration.true_errors(b_, x_));
  Matrices result = b_;
  iteration.raise(result, x_, q);
  engine_.copy(x_, result);
}

void roots_together(Engine& engine, Matrices x, ConstMatrices a,
                    InversePower power, const RootOptions& options,
                    Statuses statuses) {
  const Arena::Scope scope(engine.arena());
  std::fill(statuses.begin(), statuses.end(), RootStatus{});
  if (options.method == RootMethod::kEigen ||
      options.method == RootMethod::kPseudo) {
    by_eigenvectors(engine, x, a, power.exponent(), options, statuses);
    return;
  }
  if (options.method == RootMethod::kCans) {
    CANZONA_CHECK(power.p == 2 && power.q == 1, "CANS gives A^(-1/2)");
    return by_cans(engine, x, a, options);
  }
  RootSearch search(engine, x, a, power.p, options, statuses);
  if (options.method == RootMethod::kHigher)
    return search.by_higher_order(power.q);
  CANZONA_CHECK_EQ(power.q, 1, "Newton's method gives A^(-1/p)");
  search.by_newton();
}

}  // namespace

void inverse_roots(Engine& engine, Matrices x, ConstMatrices a,
                   InversePower power, const RootOptions& options,
                   std::span<RootStatus> statuses) {
  CANZONA_CHECK_EQ(statuses.size(), a.count, "statuses");
  for_each_part(engine, a.count, [&](int64_t begin, int64_t size) {
    roots_together(engine, x.part(begin, size), a.part(begin, size), power,
                   options,
                   statuses.subspan(static_cast<size_t>(begin),
                                    static_cast<size_t>(size)));
  });
}

}  // namespace canzona::rules
