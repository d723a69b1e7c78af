#include "canzona/rules/muon/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

// Beyond these norms the squares of entries may leave the range of the type.
struct SafeNorms {
  double least;
  double most;
};
SafeNorms safe_norms(DType source) {
  return source == DType::kFp64 ? SafeNorms{0x1p-400, 0x1p400}
                                : SafeNorms{0x1p-40, 0x1p40};
}

// The same values once more, times a factor; the momentum has already been
// advanced.
double load_again(Algebra& algebra, const Load& load, double factor,
                  Operand& x) {
  Load again = load;
  again.blend.keep = 1;
  again.blend.add = 0;
  again.prescale = factor;
  return algebra.load(x, again);
}

// The norm of what `load` gives, and the power of two that it was multiplied by
// to bring it near 1, which changes no bits. x holds the values then.
struct Norm {
  double value;
  double shift;
};
Norm load_shifted(Algebra& algebra, const Load& load, Operand& x) {
  const double norm = algebra.load(x, load);
  const SafeNorms safe = safe_norms(load.source.dtype);
  const bool is_safe = norm >= safe.least && norm <= safe.most;
  if (is_safe || norm == 0 || !std::isfinite(norm)) return {norm, 1};
  const double shift = std::ldexp(1.0, -std::ilogb(norm));
  return {load_again(algebra, load, shift, x), shift};
}

// One over the enlarged norm, in units of the shifted values, so that nothing
// overflows on the way; 0 for a matrix of zeros.
double scale_by(const NewtonSchulzPlan& plan, const Norm& norm) {
  if (norm.value == 0) return 0;
  const double epsilon = plan.epsilon * norm.shift;
  const double enlarged = plan.norm_factor * norm.value;
  return 1 /
         (plan.add_epsilon ? enlarged + epsilon : std::max(enlarged, epsilon));
}

// Loads x and sets its scale. References take the norm and divide before they
// round to bf16. Where further passes cost nothing, so do we, and get their
// bits; elsewhere the norm is that of the rounded values and goes into the
// first products.
void load_normalized(Engine& engine, const NewtonSchulzPlan& plan,
                     const Load& load, Operand& x) {
  constexpr int64_t kFewElements = 4096;
  Algebra& algebra = engine.algebra(plan.precision);
  if (plan.precision != DType::kBf16 || x.rows * x.cols > kFewElements) {
    x.scale = scale_by(plan, load_shifted(algebra, load, x));
    return;
  }
  const Arena::Scope scope(engine.arena());
  Algebra& exact = engine.algebra(DType::kFp32);
  Operand probe = exact.wide(engine.arena(), x.rows, x.cols);
  const Norm norm = load_shifted(exact, load, probe);
  load_again(algebra, load, scale_by(plan, norm) * norm.shift, x);
}

// A tighter bound of the largest singular value than |X|_F, from |XXᵀ|_F.
void normalize_by_gram(Algebra& algebra, const NewtonSchulzPlan& plan,
                       Operand& x, Operand& r) {
  const double norm = algebra.norm(r);
  if (!(norm > 0)) return;
  const double square = norm * plan.norm_factor * plan.norm_factor;
  algebra.rescale(r, 1 / square);
  x.scale /= std::sqrt(square);
}

void iterate_directly(Engine& engine, Algebra& algebra,
                      const NewtonSchulzPlan& plan, Half half, Operand x,
                      const Store& store) {
  Operand y = algebra.wide(engine.arena(), x.rows, x.cols);
  Operand r = algebra.symmetric(engine.arena(), x.rows);
  Operand p = algebra.symmetric(engine.arena(), x.rows);
  for (size_t k = 0; k < plan.steps.size(); ++k) {
    const auto& [a, b, c] = plan.steps[k];
    algebra.gram(r, x, half);
    if (k == 0 && plan.schatten4) normalize_by_gram(algebra, plan, x, r);
    algebra.polynomial(p, r, a, b, c, half);
    if (k + 1 == plan.steps.size()) {
      algebra.multiply_into(store, p, x);
    } else {
      algebra.multiply(y, p, x);
      std::swap(x, y);
    }
  }
}

// The symmetric matrices of one segment.
struct GramSpace {
  Operand r, p, q, spare, other;
};

// Q = the product of the polynomials of steps [begin, end), R being the Gram
// matrix before the first.
void collect(Algebra& algebra, const NewtonSchulzPlan& plan, size_t begin,
             size_t end, GramSpace& g) {
  for (size_t k = begin; k < end; ++k) {
    const auto& [a, b, c] = plan.steps[k];
    algebra.polynomial(g.p, g.r, a, b, c, Half::kTriangle);
    if (k + 1 < end) {
      algebra.sandwich(g.other, g.p, g.r, g.spare);
      std::swap(g.r, g.other);
    }
    if (k == begin) {
      std::swap(g.q, g.p);
    } else {
      algebra.commuting_product(g.spare, g.q, g.p);
      std::swap(g.q, g.spare);
    }
  }
}

void iterate_in_gram_space(Engine& engine, Algebra& algebra,
                           const NewtonSchulzPlan& plan, Operand x,
                           const Store& store) {
  Arena& arena = engine.arena();
  Operand y = algebra.wide(arena, x.rows, x.cols);
  const auto symmetric = [&] { return algebra.symmetric(arena, x.rows); };
  GramSpace g{symmetric(), symmetric(), symmetric(), symmetric(), symmetric()};
  size_t begin = 0;
  for (size_t segment = 0; segment <= plan.restarts.size(); ++segment) {
    const bool last = segment == plan.restarts.size();
    const size_t end =
        last ? plan.steps.size() : static_cast<size_t>(plan.restarts[segment]);
    algebra.gram(g.r, x, Half::kTriangle);
    if (begin == 0 && plan.schatten4) normalize_by_gram(algebra, plan, x, g.r);
    collect(algebra, plan, begin, end, g);
    if (last) {
      algebra.multiply_into(store, g.q, x);
    } else {
      algebra.multiply(y, g.q, x);
      std::swap(x, y);
    }
    begin = end;
  }
}

}  // namespace

NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype) {
  const RuleOptions options = facts.options();
  const std::string& precision = options.at("precision");
  NewtonSchulzPlan plan;
  plan.steps = facts.coefficients();
  plan.restarts = facts.restart_steps();
  plan.gram_rows = facts.gram_rows();
  if (dtype == DType::kFp64 || precision == "fp64")
    plan.precision = DType::kFp64;
  else if (precision == "bf16")
    plan.precision = DType::kBf16;
  else if (precision != "fp32")
    throw UsageError(cat("rule muon: precision=", precision,
                         " is not what this device computes in; it has bf16 "
                         "and fp32"));
  if (plan.precision == DType::kFp64 && dtype != DType::kFp64)
    throw UsageError("rule muon: precision=fp64 needs fp64 states");
  plan.schatten4 = options.at("normalization") == "schatten4";
  plan.norm_factor = real_option(options, "norm_factor");
  plan.epsilon = real_option(options, "epsilon");
  plan.add_epsilon = options.at("epsilon_mode") == "add";
  return plan;
}

void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan,
                   NewtonSchulz form, const Load& load, const Store& store) {
  const auto [m, n] = std::minmax(load.source.rows, load.source.cols);
  if (m == 0) return;
  const Arena::Scope scope(engine.arena());
  Algebra& algebra = engine.algebra(plan.precision);
  Operand x = algebra.wide(engine.arena(), m, n);
  load_normalized(engine, plan, load, x);
  if (form == NewtonSchulz::kGram && m >= plan.gram_rows)
    return iterate_in_gram_space(engine, algebra, plan, x, store);
  const Half half =
      form == NewtonSchulz::kStandard ? Half::kFull : Half::kTriangle;
  iterate_directly(engine, algebra, plan, half, x, store);
}

void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out) {
  const NewtonSchulzPlan plan = newton_schulz_plan(facts, in.dtype);
  const NewtonSchulz form = facts.form({in.rows, in.cols});
  const bool tall = in.rows > in.cols;
  for (int64_t i = 0; i < in.count; ++i)
    orthogonalize(engine, plan, form, {.source = in.at(i), .transpose = tall},
                  {.out = out.at(i), .transpose = tall});
}

}  // namespace canzona
