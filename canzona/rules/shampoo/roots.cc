#include "canzona/rules/shampoo/roots.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/rules/shampoo/coupled_iteration.h"
#include "canzona/rules/together.h"

namespace canzona {
namespace {

// A result further from a root than this is none.
constexpr double kFarFromRoot = 0.1;

constexpr const char* kNoVectors = "the eigendecomposition did not converge";
constexpr const char* kSingular = "the matrix is zero and nothing is added";
constexpr const char* kAstray = "the coupled iteration did not come near";

using Statuses = std::span<RootStatus>;

RootStatus& at(Statuses statuses, int64_t i) {
  return statuses[static_cast<size_t>(i)];
}

// What is added to each diagonal.
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

// With Y = Q·diag(λ^(-e/2)) the root is Y·Yᵀ, a triangle and symmetric.
// Eigenvalues that rounding left below what the damping promises are lifted.
void by_eigenvectors(Engine& engine, Matrices x, ConstMatrices a,
                     double exponent, const RootOptions& options,
                     Statuses statuses) {
  Arena& arena = engine.arena();
  const int64_t d = a.rows;
  const Matrices q = arena.matrices(a.dtype, d, d, a.count);
  const Matrices y = arena.matrices(a.dtype, d, d, a.count);
  const Matrices values = arena.matrices(a.dtype, 1, d, a.count);
  PerTensor<double> added = damping(engine, a, options);
  engine.copy(q, a);
  if (options.perturb_before) engine.add_diagonal(q, added.span());
  PerTensor<bool> succeeded(a.count);
  engine.eigh(q, values, succeeded.span());
  engine.raise_values(values, added.span(), !options.perturb_before,
                      -exponent / 2);
  engine.scale_columns(y, q, values);
  engine.symmetric_product(x, 1.0, y, Op::kNone, 0.0);
  for (int64_t i = 0; i < a.count; ++i)
    if (!succeeded[i]) at(statuses, i) = {false, kNoVectors, 0, 0};
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
        b_(damped(a)),
        going_(a.count, true) {}

  void by_newton();
  void by_higher_order(int64_t q);

 private:
  Matrices damped(ConstMatrices a) {
    const Matrices b =
        engine_.arena().matrices(a.dtype, a.rows, a.cols, a.count);
    engine_.copy(b, a);
    engine_.add_diagonal(b, damping(engine_, a, options_).span());
    return b;
  }
  // numerator/sizes, for what has a size; the others have no root.
  PerTensor<double> scales(double numerator, PerTensor<double>& sizes);
  bool any_going() const;
  // Ends those that `ends` says, with their X.
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

// z makes the largest eigenvalue of M at most (p+1)/2, where Newton converges.
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

// One step of Newton's method brings M to where more terms converge. Ends
// early where rounding stops the progress.
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
  if (options.method == RootMethod::kEigen) {
    by_eigenvectors(engine, x, a, power.exponent(), options, statuses);
    return;
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

}  // namespace canzona
