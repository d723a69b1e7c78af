#include "canzona/rules/muon/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/options.h"
#include "canzona/rules/strips.h"

namespace canzona {
namespace {

void orthogonalize_part(Engine& engine, const NewtonSchulzPlan& plan,
                        MuonWay way, const Load& load, const Store& store) {
  const auto [m, n] = std::minmax(load.source.rows, load.source.cols);
  const Arena::Scope scope(engine.arena());
  Algebra& algebra = engine.algebra(plan.numbers(way).precision);
  Operand x = algebra.wide(engine.arena(), m, n, load.source.count,
                           load.transpose, cuts_of(n, way.strips));
  algebra.load_normalized(x, load, plan.normalization);
  Operand y = algebra.wide(engine.arena(), m, n, x.count, x.tall, x.strips);
  GramSpace g = make_gram_space(engine.arena(), algebra, plan, way, m, x.count);
  algebra.gram(g.r, x, half_of(way));
  iterate_segments(algebra, plan, way, x, y, g);
  algebra.multiply_into(store, g.q, x);
}

}  // namespace

Half half_of(MuonWay way) {
  return way.form == NewtonSchulz::kStandard ? Half::kFull : Half::kTriangle;
}

size_t num_segments(const NewtonSchulzPlan& plan, MuonWay way) {
  if (way.form != NewtonSchulz::kGram) return plan.steps.size();
  return plan.numbers(way).restarts.size() + 1;
}

SegmentSteps segment_steps(const NewtonSchulzPlan& plan, MuonWay way,
                           size_t segment) {
  if (way.form != NewtonSchulz::kGram) return {segment, segment + 1};
  const std::vector<int64_t>& restarts = plan.numbers(way).restarts;
  const auto after = [&](size_t restart) {
    return restart < restarts.size() ? static_cast<size_t>(restarts[restart])
                                     : plan.steps.size();
  };
  return {segment == 0 ? 0 : after(segment - 1), after(segment)};
}

GramSpace make_gram_space(Arena& arena, Algebra& algebra,
                          const NewtonSchulzPlan& plan, MuonWay way,
                          int64_t rows, int64_t count) {
  GramSpace g;
  g.r = algebra.symmetric(arena, rows, count);
  g.q = algebra.symmetric(arena, rows, count);
  if (num_segments(plan, way) == plan.steps.size()) return g;
  for (Operand* more : {&g.p, &g.spare, &g.other})
    *more = algebra.symmetric(arena, rows, count);
  return g;
}

void collect(Algebra& algebra, const NewtonSchulzPlan& plan, MuonWay way,
             size_t segment, GramSpace& g) {
  const auto [begin, end] = segment_steps(plan, way, segment);
  for (size_t k = begin; k < end; ++k) {
    const auto& [a, b, c] = plan.steps[k];
    Operand& p = k == begin ? g.q : g.p;
    algebra.polynomial(p, g.r, a, b, c, half_of(way),
                       end - begin == 1 ? Readers::kMultiply : Readers::kAll);
    if (k + 1 < end) {
      algebra.sandwich(g.other, p, g.r, g.spare);
      std::swap(g.r, g.other);
    }
    if (k > begin) {
      algebra.commuting_product(g.spare, g.q, g.p);
      std::swap(g.q, g.spare);
    }
  }
}

void iterate_segments(Algebra& algebra, const NewtonSchulzPlan& plan,
                      MuonWay way, Operand& x, Operand& y, GramSpace& g) {
  if (plan.schatten4)
    algebra.normalize_by_gram(x, g.r, plan.normalization.factor);
  const size_t last = num_segments(plan, way) - 1;
  for (size_t segment = 0; segment < last; ++segment) {
    collect(algebra, plan, way, segment, g);
    algebra.multiply(y, g.q, x);
    std::swap(x, y);
    algebra.gram(g.r, x, half_of(way));
  }
  collect(algebra, plan, way, last, g);
}

Strips cuts_of(int64_t side, int strips) {
  Strips cuts;
  cuts.count = strips;
  for (int s = 0; s < strips; ++s)
    cuts.at[static_cast<size_t>(s)] = strip_border(side, strips, s);
  return cuts;
}

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
  if (usual == DType::kFp16 && !device_kind(options.at("device")).has_fp16)
    throw UsageError(cat("rule muon: precision=fp16 on ", options.at("device"),
                         ": use bf16 or fp32 on a CPU"));
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
