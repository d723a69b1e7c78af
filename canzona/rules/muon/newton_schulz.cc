#include "canzona/rules/muon/newton_schulz.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/options.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {
namespace {

// The standard form computes both halves of symmetric matrices, the others one.
Half half_of(MuonWay way) {
  return way.form == NewtonSchulz::kStandard ? Half::kFull : Half::kTriangle;
}

// The steps are done in segments, each on its own Gram matrix: in the direct
// forms every step is a segment.
size_t num_segments(const NewtonSchulzPlan& plan, MuonWay way) {
  if (way.form != NewtonSchulz::kGram) return plan.steps.size();
  return plan.numbers(way).restarts.size() + 1;
}

// The steps [begin, end) of a segment.
struct SegmentSteps {
  size_t begin = 0;
  size_t end = 0;
};
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

// The symmetric matrices of a segment. The last three exist if a segment may
// have more than one step.
struct GramSpace {
  Operand r, q, p, spare, other;
};
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

// Sets g.q to the product of the polynomials of a segment, where g.r is the
// Gram matrix before the segment.
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

// The cuts of a long side into that many strips, in the form operands use.
Strips cuts_of(int64_t side, int strips) {
  Strips cuts;
  cuts.count = strips;
  for (int s = 0; s < strips; ++s)
    cuts.at[static_cast<size_t>(s)] = strip_border(side, strips, s);
  return cuts;
}

void load_operand(Engine& engine, Algebra& algebra, Operand& x,
                  const Load& load, const Normalization& normalization) {
  if (!load.even_rows || algebra.loads_even_rows(x))
    return algebra.load_normalized(x, load, normalization);
  const Arena::Scope scope(engine.arena());
  algebra.load_normalized(
      x, {.source = with_even_rows(engine, load), .transpose = load.transpose},
      normalization);
}

void orthogonalize_part(Engine& engine, const NewtonSchulzPlan& plan,
                        MuonWay way, const Load& load, const Store& store) {
  const auto [m, n] = std::minmax(load.source.rows, load.source.cols);
  const Arena::Scope scope(engine.arena());
  Algebra& algebra = engine.algebra(plan.numbers(way).precision);
  Operand x = algebra.wide(engine.arena(), m, n, load.source.count,
                           load.transpose, cuts_of(n, way.strips));
  load_operand(engine, algebra, x, load, plan.normalization);
  Operand y = algebra.wide(engine.arena(), m, n, x.count, x.tall, x.strips);
  GramSpace g = make_gram_space(engine.arena(), algebra, plan, way, m, x.count);
  const size_t last = num_segments(plan, way) - 1;
  for (size_t segment = 0; segment <= last; ++segment) {
    algebra.gram(g.r, x, half_of(way));
    if (segment == 0 && plan.schatten4)
      algebra.normalize_by_gram(x, g.r, plan.normalization.factor);
    collect(algebra, plan, way, segment, g);
    if (segment == last) break;
    algebra.multiply(y, g.q, x);
    std::swap(x, y);
  }
  algebra.multiply_into(store, g.q, x);
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
  if (usual == DType::kFp16 && !device_kind(options.at("device")).has_fp16)
    throw UsageError(cat("rule muon: precision=fp16 on ", options.at("device"),
                         " is not supported; use bf16 or fp32"));
  if (usual == DType::kFp64 && dtype != DType::kFp64)
    throw UsageError("rule muon: precision=fp64 needs fp64 states");
  plan.schatten4 = options.at("normalization") == "schatten4";
  plan.normalization = {real_option(options, "norm_factor"),
                        real_option(options, "epsilon"),
                        options.at("epsilon_mode") == "add"};
  return plan;
}

Matrices with_even_rows(Engine& engine, const Load& load) {
  const ConstMatrices& from = load.source;
  const auto [dtype, rows, cols, count] =
      std::tuple(from.dtype, from.rows, from.cols, from.count);
  const Matrices even = engine.arena().matrices(dtype, rows, cols, count);
  const Matrices norms = engine.arena().matrices(dtype, 1, rows, count);
  const Matrices factors = engine.arena().matrices(dtype, 1, rows, count);
  const auto blend = [&](int64_t i) {
    return load.momentum.data != nullptr ? ConstMatrices(even.at(i))
                                         : from.at(i);
  };
  for (int64_t i = 0; i < count; ++i) {
    if (load.momentum.data != nullptr)
      engine.momentum({.grad = {from.at(i).data, dtype},
                       .momentum = {load.momentum.at(i).data, dtype},
                       .out = {even.at(i).data, dtype},
                       .blend = load.blend},
                      rows * cols);
    engine.line_norms(norms.at(i), blend(i), Lines::kRows);
  }
  engine.line_factors(
      factors, norms,
      {.kind = LineFactors::Kind::kEven, .floor = load.even_floor}, {}, {});
  for (int64_t i = 0; i < count; ++i)
    engine.scale_rows(even.at(i), blend(i), factors.at(i));
  return even;
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
  orthogonalize(engine, plan, way,
                {.source = in,
                 .transpose = tall,
                 .even_rows = facts.links().equilibrate,
                 .even_floor = facts.links().equilibrate_eps},
                {.out = out, .transpose = tall});
}

namespace {

static_assert(kFactorScalarBytes == SharedAlgebra::kFactorScalars * 8);
static_assert(kNormPartBytes == sizeof(NormPart));

// The strips of a member; columns are counted from the member's first.
Strips strips_of_seat(int64_t side, int strips, const TeamSeat& seat) {
  const int each = strips / seat.members;
  const int first = each * seat.member;
  Strips own;
  own.count = each;
  for (int s = 0; s < each; ++s)
    own.at[static_cast<size_t>(s)] = strip_border(side, strips, first + s) -
                                     strip_border(side, strips, first);
  return own;
}

int64_t width_of_seat(int64_t side, int strips, const TeamSeat& seat) {
  return seat_border(side, strips, seat.members, seat.member + 1) -
         seat_border(side, strips, seat.members, seat.member);
}

class SharedNewtonSchulz final : public SharedTransform {
 public:
  SharedNewtonSchulz(Arena& arena, Algebra& algebra, SharedAlgebra& shared,
                     const NewtonSchulzPlan& plan, MuonWay way,
                     MatrixShape shape, const TeamSeat& seat)
      : algebra_(algebra),
        shared_(shared),
        plan_(plan),
        way_(way),
        seat_(seat),
        tall_(shape.rows > shape.cols) {
    const auto [m, n] = std::minmax(shape.rows, shape.cols);
    const int64_t width = width_of_seat(n, way.strips, seat);
    const Strips strips = strips_of_seat(n, way.strips, seat);
    piece_ = tall_ ? MatrixShape{width, m} : MatrixShape{m, width};
    for (Operand& wide : wide_)
      wide = shared.part(arena, m, width, tall_, strips);
    if (seat.head)
      gram_space_ = make_gram_space(arena, algebra, plan, way, m, 1);
    else
      factor_ = algebra.symmetric(arena, m);
  }

  MatrixShape piece() const override { return piece_; }
  int segments() const override {
    return static_cast<int>(num_segments(plan_, way_));
  }
  int64_t part_bytes() const override {
    return wide_[0].strips.count * static_cast<int64_t>(sizeof(NormPart));
  }
  int64_t sum_elements() const override {
    return wide_[0].rows * (wide_[0].rows + 1) / 2;
  }
  int64_t bytes_per_sum() const override { return shared_.sum_bytes(); }
  int64_t bytes_per_rounded() const override { return shared_.rounded_bytes(); }
  int64_t factor_bytes() const override {
    return kFactorScalarBytes + sum_elements() * shared_.rounded_bytes();
  }

  // A stage may be called more often than it runs (Engine::repeat), so the
  // operands it uses depend on the segment alone.
  void load(ConstRun piece, std::byte* parts) override {
    load_ = {.source = as_matrices(piece, piece_.rows, piece_.cols),
             .transpose = tall_};
    shared_.load_parts(wide_[0], load_, parts_of(parts));
  }

  bool normalize(const std::byte* all, std::byte* parts) override {
    return shared_.normalize(
        wide_[0], load_,
        {reinterpret_cast<const NormPart*>(all),
         static_cast<size_t>(wide_[0].strips.count * seat_.members)},
        plan_.normalization, parts_of(parts));
  }

  void sum(int segment, std::byte* sums) override {
    shared_.gram_sum(sums, x_of(segment), half_of(way_));
  }

  void round(int segment, const std::byte* sums, int64_t count,
             std::byte* rounded) override {
    shared_.round_sum(rounded, sums, count, x_of(segment));
  }

  void iterate(int segment, const std::byte* rounded,
               std::byte* factor) override {
    CANZONA_CHECK(seat_.head, "iterate on member ", seat_.member);
    GramSpace g = gram_space_;
    shared_.take_gram(g.r, rounded);
    if (segment == 0 && plan_.schatten4)
      algebra_.normalize_by_gram(x_of(segment), g.r,
                                 plan_.normalization.factor);
    collect(algebra_, plan_, way_, static_cast<size_t>(segment), g);
    shared_.put_factor(factor, g.q, x_of(segment));
    factor_ = g.q;
  }

  void multiply(int segment, const std::byte* factor, Run out) override {
    Operand& x = x_of(segment);
    if (!seat_.head) shared_.take_factor(factor_, x, factor, only_a(segment));
    if (segment + 1 < segments())
      return algebra_.multiply(x_of(segment + 1), factor_, x);
    algebra_.multiply_into(
        {.out = as_matrices(out, piece_.rows, piece_.cols), .transpose = tall_},
        factor_, x);
  }

 private:
  double only_a(int segment) const {
    const auto [begin, end] =
        segment_steps(plan_, way_, static_cast<size_t>(segment));
    return end - begin == 1 ? plan_.steps[begin].a : 0;
  }

  std::span<NormPart> parts_of(std::byte* parts) const {
    return {reinterpret_cast<NormPart*>(parts),
            static_cast<size_t>(wide_[0].strips.count)};
  }
  Operand& x_of(int segment) { return wide_[segment % 2]; }

  Algebra& algebra_;
  SharedAlgebra& shared_;
  const NewtonSchulzPlan& plan_;
  const MuonWay way_;
  const TeamSeat seat_;
  const bool tall_;
  MatrixShape piece_;
  Operand wide_[2];
  GramSpace gram_space_;  // used by the head
  Operand factor_;        // of the current segment
  Load load_;
};

}  // namespace

std::unique_ptr<SharedTransform> share_newton_schulz(
    Engine& engine, Arena& arena, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, const TeamSeat& seat) {
  CANZONA_CHECK(seat.members >= 1 && way.strips % seat.members == 0 &&
                    seat.member >= 0 && seat.member < seat.members,
                "member ", seat.member, " of ", seat.members, " with ",
                way.strips, " strips");
  Algebra& algebra = engine.algebra(plan.numbers(way).precision);
  SharedAlgebra* shared = algebra.shared();
  if (shared == nullptr) return nullptr;
  if (plan.schatten4 && !shared->shares_gram_norm()) return nullptr;
  return std::make_unique<SharedNewtonSchulz>(arena, algebra, *shared, plan,
                                              way, shape, seat);
}

}  // namespace canzona::rules
