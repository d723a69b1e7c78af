// Muon's three stages.
#include "canzona/rules/rule.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "canzona/base/check.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/linked.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/options.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {
namespace {

Blend blend_of(const RuleOptions& options) {
  const double mu = real_option(options, "momentum");
  const bool average = options.at("momentum_form") == "ema";
  Blend blend;
  blend.keep = mu;
  blend.add = average ? 1 - mu : 1;
  if (switch_option(options, "nesterov")) {
    blend.from_grad = blend.add;
    blend.from_momentum = mu;
  }
  return blend;
}

DecayOptions muon_decay(const RuleOptions& options) {
  return {options.at("decay_form"), "before",
          real_option(options, "weight_decay"),
          real_option(options, "learning_rate")};
}

// An orthogonal m x n factor has a root mean square of 1/sqrt(max(m, n)); the
// scale determines that of the update.
double shape_scale(const std::string& scale, MatrixShape shape) {
  const auto m = static_cast<double>(shape.rows);
  const auto n = static_cast<double>(shape.cols);
  if (m == 0 || n == 0) return 1;
  if (scale == "match_rms") return 0.2 * std::sqrt(std::max(m, n));
  if (scale == "sqrt_max") return std::sqrt(std::max(m, n));
  if (scale == "original") return std::sqrt(std::max(1.0, m / n));
  if (scale == "unit_rms") return std::sqrt(m / n);
  CANZONA_CHECK(scale == "none", "scale ", scale);
  return 1;
}

// The heads of matrix `i` of a batch, where they are matrices of a stack.
Matrices apart_heads(Run stacks, const MuonStack& heads, int64_t i) {
  const int64_t rows = heads.shape.rows, cols = heads.shape.cols;
  return as_matrices(advanced(stacks, i * heads.count * rows * cols), rows,
                     cols, heads.count);
}

// The same, where they are columns of a matrix.
template <class AnyRun>
auto adjacent_heads(AnyRun matrices, const MuonStack& heads, int64_t i) {
  const int64_t rows = heads.shape.rows, cols = heads.shape.cols;
  auto all = as_matrices(advanced(matrices, i * heads.count * rows * cols),
                         rows, cols, heads.count);
  all.row_stride = heads.count * cols;
  all.matrix_stride = cols;
  return all;
}

// Locates the matrices [begin, begin + size) of whole tensors.
class Places {
 public:
  static constexpr int64_t kMost = 256;

  Places(const WholeTensors& tensors, const MuonStack& stack, int64_t begin,
         int64_t size)
      : size_(size),
        rounds_(tensors.shards[0].rounded != nullptr),
        group_rows_(tensors.shards[0].group_rows) {
    const int64_t each = stack.shape.rows * stack.shape.cols;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t matrix = begin + i;
      const Shard& shard =
          tensors.shards[static_cast<size_t>(matrix / stack.count)];
      const int64_t skipped = matrix % stack.count * each;
      grads_[i] = advanced(shard.grad, skipped).data;
      momenta_[i] = advanced(shard.states[0], skipped).data;
      weights_[i] = advanced(shard.weights, skipped).data;
      CANZONA_CHECK((shard.rounded != nullptr) == rounds_,
                    "some weights are wanted in bf16, others not");
      if (rounds_) rounded_[i] = shard.rounded + skipped;
      CANZONA_CHECK_EQ(shard.group_rows, group_rows_, "rows of a group");
      grad_skips_[i] = shard.grad_skip;
      skips_[i] = shard.skip;
    }
  }

  ConstMatrices grads(DType dtype, MatrixShape shape) const {
    return view<ConstMatrices>(grads_, grad_skips_, dtype, shape);
  }
  Matrices momenta(DType dtype, MatrixShape shape) const {
    return view<Matrices>(momenta_, skips_, dtype, shape);
  }
  Matrices weights(DType dtype, MatrixShape shape) const {
    return view<Matrices>(weights_, skips_, dtype, shape);
  }
  uint16_t* const* rounded() const { return rounds_ ? rounded_ : nullptr; }

 private:
  template <class Views, class Byte>
  Views view(Byte* const (&places)[kMost], const int64_t (&skips)[kMost],
             DType dtype, MatrixShape shape) const {
    const int64_t rows = shape.rows, cols = shape.cols;
    Views views{places[0], dtype, rows, cols, cols, size_, rows * cols, places};
    if (group_rows_ == 0) return views;
    views.skips = skips;
    views.group_rows = group_rows_;
    return views;
  }

  int64_t size_;
  bool rounds_;
  int64_t group_rows_;
  int64_t grad_skips_[kMost], skips_[kMost];
  const std::byte* grads_[kMost];
  std::byte* momenta_[kMost];
  std::byte* weights_[kMost];
  uint16_t* rounded_[kMost];
};

class MuonRule final : public RuleOf<MuonFacts> {
 public:
  MuonRule(const RuleOptions& options, DType dtype)
      : RuleOf(options, dtype),
        plan_(newton_schulz_plan(facts_, dtype)),
        blend_(blend_of(facts_.options())),
        decay_(muon_decay(facts_.options())),
        cautious_(switch_option(facts_.options(), "cautious_decay")),
        scales_decay_(facts_.options().at("decay_lr") == "scaled"),
        scale_(facts_.options().at("scale")),
        scales_by_last_two_(facts_.options().at("scale_shape") == "last_two"),
        scale_extra_(real_option(facts_.options(), "scale_extra")) {}

  void prepare(Engine& engine, const Step&, const Shard& shard,
               std::span<const Run> fields) const override {
    engine.momentum({.grad = shard.grad,
                     .weights = shard.weights,
                     .l2 = l2_factor(decay_),
                     .momentum = shard.states[0],
                     .out = fields[0],
                     .blend = blend_},
                    shard.count);
    size_t next = 1;
    const auto pass_on = [&](ConstRun run) {
      engine.copy(as_row(fields[next++], shard.count),
                  as_row(run, shard.count));
    };
    if (facts_.links().needs_gradient()) pass_on(shard.grad);
    if (facts_.links().needs_weights()) pass_on(shard.weights);
  }

  bool prepares_from_weights() const override {
    return l2_factor(decay_) != 0 || facts_.links().needs_weights();
  }

  void transform(Engine& engine, const Step& step,
                 const Batch& batch) const override {
    const MuonStack stack = facts_.stack_of(batch.dims);
    if (!stack.by_columns)
      return transform_stack(engine, step, batch, batch.fields, batch.out);
    const Arena::Scope scope(engine.arena());
    const int64_t elements = num_elements(batch.dims) * batch.count;
    ConstRun fields[kMostFields];
    for (size_t f = 0; f < batch.fields.size(); ++f) {
      const Run apart = take(engine, elements);
      for (int64_t i = 0; i < batch.count; ++i)
        engine.copy(apart_heads(apart, stack, i),
                    adjacent_heads(batch.fields[f], stack, i));
      fields[f] = apart;
    }
    const Run out = take(engine, elements);
    transform_stack(engine, step, batch, {fields, batch.fields.size()}, out);
    for (int64_t i = 0; i < batch.count; ++i)
      engine.copy(adjacent_heads(batch.out, stack, i),
                  apart_heads(out, stack, i));
  }

  // The same on fields and an output in which heads are a stack.
  void transform_stack(Engine& engine, const Step& step, const Batch& batch,
                       std::span<const ConstRun> fields, Run update) const {
    const MuonStack stack = facts_.stack_of(batch.dims);
    const int64_t count = batch.count * stack.count;
    const int64_t rows = stack.shape.rows, cols = stack.shape.cols;
    const auto field = [&](size_t i) {
      return as_matrices(fields[i], rows, cols, count);
    };
    const ConstMatrices in = field(0);
    const Matrices out = as_matrices(update, rows, cols, count);
    const MuonWay way = facts_.way(stack.shape);
    const auto factor = [&](Matrices o, int64_t begin) {
      const Load load = load_of(in.part(begin, o.count));
      orthogonalize(engine, plan_, way, load,
                    {.out = o, .transpose = load.transpose});
      if (batch.hook == nullptr) return;
      const Arena::Scope scope(engine.arena());
      batch.hook->saw_factor(
          load.even_rows ? with_even_rows(engine, load) : load.source, o);
    };
    if (!facts_.links().any_after()) return factor(out, 0);
    LinkedInput linked{.blend = in};
    size_t next = 1;
    if (facts_.links().needs_gradient()) linked.grad = field(next++);
    if (facts_.links().needs_weights()) linked.weights = field(next++);
    if (!batch.states.empty()) linked.moments = batch.states[0];
    run_links(engine, facts_.links(), linked, out, moved(step, batch.dims),
              std::cref(factor));
  }

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    // A constrained update is the difference of the weights.
    engine.apply(shard.weights, update,
                 facts_.links().hyperball ? Apply{.step = 1}
                                          : applied(step, shard.whole),
                 shard.count, shard.rounded);
  }

  std::unique_ptr<SharedTransform> share(Engine& engine, Arena& arena,
                                         MatrixShape shape,
                                         const TeamSeat& seat) const override {
    const MuonWay way = facts_.way(shape);
    if (way.strips == 1 || facts_.cuts_columns()) return nullptr;
    return share_newton_schulz(engine, arena, plan_, way, shape, seat);
  }

  bool lets_gradients_move() const override {
    const MuonLinks& links = facts_.links();
    return !facts_.cuts_columns() && l2_factor(decay_) == 0 &&
           !links.needs_gradient() && (links.any_after() || !cautious_);
  }

  bool steps_whole_as_sent(Engine& engine) const override {
    const MuonLinks& links = facts_.links();
    return lets_gradients_move() && !links.any_after() && !links.equilibrate &&
           engine.algebra(plan_.usual.precision).rounds_as_sent();
  }

  bool steps_whole_in_groups(Engine& engine) const override {
    const MuonLinks& links = facts_.links();
    return lets_gradients_move() && !links.any_after() && !links.equilibrate &&
           engine.algebra(plan_.usual.precision).takes_row_groups();
  }

  // Makes one pass over memory before the products and none after: the first
  // fills the operand directly from gradient and momentum, and the last product
  // writes the weights. Cautious updates cannot be fused this way. With links
  // after the products, these write the factor, and what follows is fused.
  void step_whole(Engine& engine, const Step& step,
                  const WholeTensors& tensors) const override {
    if (!lets_gradients_move() || !tensors.uncut() || tensors.hook != nullptr)
      return Rule::step_whole(engine, step, tensors);
    if (facts_.links().any_after()) return step_linked(engine, step, tensors);
    const MuonStack stack = facts_.stack_of(tensors.dims);
    const auto count =
        static_cast<int64_t>(tensors.shards.size()) * stack.count;
    for (int64_t begin = 0; begin < count; begin += Places::kMost)
      step_places(engine, step, tensors,
                  Places(tensors, stack, begin,
                         std::min(Places::kMost, count - begin)));
  }

 private:
  // How a matrix is read: a blend, or a gradient with its momentum.
  Load load_of(ConstMatrices source, Matrices momentum = {}) const {
    return {.source = source,
            .momentum = momentum,
            .blend = blend_,
            .transpose = source.rows > source.cols,
            .even_rows = facts_.links().equilibrate,
            .even_floor = facts_.links().equilibrate_eps};
  }

  void step_linked(Engine& engine, const Step& step,
                   const WholeTensors& tensors) const {
    const MuonStack stack = facts_.stack_of(tensors.dims);
    const MatrixShape shape = stack.shape;
    const int64_t count = std::ssize(tensors.shards) * stack.count;
    const MuonWay way = facts_.way(shape);
    Run moments = tensors.owned.empty() ? Run{} : tensors.owned[0];
    const int64_t moments_each =
        tensors.owned.empty() ? 0 : facts_.links().num_moments(shape);
    for (int64_t begin = 0; begin < count; begin += Places::kMost) {
      const int64_t size = std::min(Places::kMost, count - begin);
      const Arena::Scope scope(engine.arena());
      const Places places(tensors, stack, begin, size);
      const Run update = take(engine, size * shape.rows * shape.cols);
      const Matrices weights = places.weights(dtype_, shape);
      const LinkedInput linked{.weights = weights, .moments = moments};
      const LinkedStore store{weights, applied(step, tensors.dims),
                              places.rounded()};
      const auto factor = [&](Matrices o, int64_t from) {
        const Load load =
            load_of(places.grads(dtype_, shape).part(from, o.count),
                    places.momenta(dtype_, shape).part(from, o.count));
        orthogonalize(engine, plan_, way, load,
                      {.out = o, .transpose = load.transpose});
      };
      run_links(engine, facts_.links(), linked,
                as_matrices(update, shape.rows, shape.cols, size),
                moved(step, tensors.dims), std::cref(factor), &store);
      moments = advanced(moments, size * moments_each);
    }
  }

  void step_places(Engine& engine, const Step& step,
                   const WholeTensors& tensors, const Places& places) const {
    const MatrixShape shape = facts_.stack_of(tensors.dims).shape;
    const Apply apply = applied(step, tensors.dims);
    Load load =
        load_of(places.grads(dtype_, shape), places.momenta(dtype_, shape));
    load.as_sent = tensors.as_sent;
    orthogonalize(engine, plan_, facts_.way(shape), load,
                  {.out = places.weights(dtype_, shape),
                   .apply = &apply,
                   .transpose = load.transpose,
                   .rounded = places.rounded(),
                   .as_sent = tensors.as_sent});
  }

  Apply applied(const Step& step, const Dims& whole) const {
    const MuonStack stack = facts_.stack_of(whole);
    MatrixShape shape = stack.shape;
    if (scales_by_last_two_ && !stack.by_columns)
      shape = {whole[whole.size() - 2], whole[whole.size() - 1]};
    const double factor = shape_scale(scale_, shape) * scale_extra_;
    Apply apply = apply_coefficients(decay_, step, factor);
    if (scales_decay_)
      apply.keep_before = 1 - decay_fraction(decay_, apply.step);
    apply.cautious = cautious_;
    return apply;
  }

  // How weights move before they are constrained: the constraint gives the
  // update its length, whatever its scale.
  Apply moved(const Step& step, const Dims& whole) const {
    Apply apply = applied(step, whole);
    if (apply.step != 0) apply.step = step.learning_rate;
    return apply;
  }

  NewtonSchulzPlan plan_;
  Blend blend_;
  DecayOptions decay_;
  bool cautious_;
  bool scales_decay_;
  std::string scale_;
  bool scales_by_last_two_;
  double scale_extra_;
};

}  // namespace

std::unique_ptr<Rule> make_muon_rule(const RuleOptions& given, DType dtype) {
  RuleOptions options = given;
  if (dtype == DType::kFp64) options["precision"] = "fp64";
  return std::make_unique<MuonRule>(options, dtype);
}

}  // namespace canzona::rules
