#include "canzona/rules/muon/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/options.h"

namespace canzona {
namespace {

void iterate_directly(Engine& engine, Algebra& algebra,
                      const NewtonSchulzPlan& plan, Half half, Operand x,
                      const Store& store) {
  Arena& arena = engine.arena();
  Operand y = algebra.wide(arena, x.rows, x.cols, x.count, x.tall);
  Operand r = algebra.symmetric(arena, x.rows, x.count);
  Operand p = algebra.symmetric(arena, x.rows, x.count);
  for (size_t k = 0; k < plan.steps.size(); ++k) {
    const auto& [a, b, c] = plan.steps[k];
    algebra.gram(r, x, half);
    if (k == 0 && plan.schatten4)
      algebra.normalize_by_gram(x, r, plan.normalization.factor);
    algebra.polynomial(p, r, a, b, c, half, Readers::kMultiply);
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
    algebra.polynomial(g.p, g.r, a, b, c, Half::kTriangle,
                       end - begin == 1 ? Readers::kMultiply : Readers::kAll);
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
                           const NewtonSchulzPlan& plan,
                           const std::vector<int64_t>& restarts, Operand x,
                           const Store& store) {
  Arena& arena = engine.arena();
  Operand y = algebra.wide(arena, x.rows, x.cols, x.count, x.tall);
  const auto symmetric = [&] {
    return algebra.symmetric(arena, x.rows, x.count);
  };
  GramSpace g{symmetric(), symmetric(), symmetric(), symmetric(), symmetric()};
  size_t begin = 0;
  for (size_t segment = 0; segment <= restarts.size(); ++segment) {
    const bool last = segment == restarts.size();
    const size_t end =
        last ? plan.steps.size() : static_cast<size_t>(restarts[segment]);
    algebra.gram(g.r, x, Half::kTriangle);
    if (begin == 0 && plan.schatten4)
      algebra.normalize_by_gram(x, g.r, plan.normalization.factor);
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

void orthogonalize_part(Engine& engine, const NewtonSchulzPlan& plan,
                        MuonWay way, const Load& load, const Store& store) {
  const auto [m, n] = std::minmax(load.source.rows, load.source.cols);
  const Arena::Scope scope(engine.arena());
  const NewtonSchulzNumbers& numbers = way.small ? plan.small : plan.usual;
  Algebra& algebra = engine.algebra(numbers.precision);
  Operand x =
      algebra.wide(engine.arena(), m, n, load.source.count, load.transpose);
  algebra.load_normalized(x, load, plan.normalization);
  if (way.form == NewtonSchulz::kGram)
    return iterate_in_gram_space(engine, algebra, plan, numbers.restarts, x,
                                 store);
  const Half half =
      way.form == NewtonSchulz::kStandard ? Half::kFull : Half::kTriangle;
  iterate_directly(engine, algebra, plan, half, x, store);
}

}  // namespace

NewtonSchulzPlan newton_schulz_plan(const MuonFacts& facts, DType dtype) {
  const RuleOptions options = facts.options();
  const std::string& precision = options.at("precision");
  NewtonSchulzPlan plan;
  plan.steps = facts.coefficients();
  plan.usual.restarts = facts.restart_steps();
  plan.small.restarts = facts.restart_steps(/*small=*/true);
  DType& usual = plan.usual.precision;
  if (dtype == DType::kFp64 || precision == "fp64")
    usual = plan.small.precision = DType::kFp64;
  else if (precision == "bf16")
    usual = DType::kBf16;
  else if (precision == "fp16")
    usual = DType::kFp16;
  else if (precision != "fp32")
    throw UsageError(cat("rule muon: precision=", precision,
                         ", expected fp16, bf16 or fp32"));
  if (usual == DType::kFp16 && options.at("device") != "cuda")
    throw UsageError(cat("rule muon: precision=fp16 on ", options.at("device"),
                         ": a CPU computes in bf16 and fp32"));
  if (usual == DType::kFp64 && dtype != DType::kFp64)
    throw UsageError("rule muon: precision=fp64 needs fp64 states");
  plan.schatten4 = options.at("normalization") == "schatten4";
  plan.normalization = {real_option(options, "norm_factor"),
                        real_option(options, "epsilon"),
                        options.at("epsilon_mode") == "add"};
  return plan;
}

void orthogonalize(Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
                   const Load& load, const Store& store) {
  if (std::min(load.source.rows, load.source.cols) == 0) return;
  const int64_t width = engine.batch_width();
  for (int64_t begin = 0; begin < load.source.count; begin += width) {
    const int64_t size = std::min(width, load.source.count - begin);
    Load some = load;
    some.source = load.source.part(begin, size);
    if (load.momentum.data != nullptr)
      some.momentum = load.momentum.part(begin, size);
    Store there = store;
    there.out = store.out.part(begin, size);
    if (store.rounded != nullptr) there.rounded = store.rounded + begin;
    orthogonalize_part(engine, plan, way, some, there);
  }
}

void orthogonalize(Engine& engine, const MuonFacts& facts, ConstMatrices in,
                   Matrices out) {
  const NewtonSchulzPlan plan = newton_schulz_plan(facts, in.dtype);
  const MuonWay way = facts.way({in.rows, in.cols});
  const bool tall = in.rows > in.cols;
  orthogonalize(engine, plan, way, {.source = in, .transpose = tall},
                {.out = out, .transpose = tall});
}

}  // namespace canzona
