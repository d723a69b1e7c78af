// Muon's three stages.
#include "canzona/rules/rule.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/options.h"
#include "canzona/rules/runs.h"

namespace canzona {
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

// Locates the matrices [begin, begin + size) of whole tensors.
class Places {
 public:
  static constexpr int64_t kMost = 256;

  Places(const WholeTensors& tensors, const MuonStack& stack, int64_t begin,
         int64_t size)
      : size_(size), rounds_(tensors.shards[0].rounded != nullptr) {
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
    }
  }

  ConstMatrices grads(DType dtype, MatrixShape shape) const {
    return view<ConstMatrices>(grads_, dtype, shape);
  }
  Matrices momenta(DType dtype, MatrixShape shape) const {
    return view<Matrices>(momenta_, dtype, shape);
  }
  Matrices weights(DType dtype, MatrixShape shape) const {
    return view<Matrices>(weights_, dtype, shape);
  }
  uint16_t* const* rounded() const { return rounds_ ? rounded_ : nullptr; }

 private:
  template <class Views, class Byte>
  Views view(Byte* const (&places)[kMost], DType dtype,
             MatrixShape shape) const {
    const auto [rows, cols] = shape;
    return {places[0], dtype, rows, cols, cols, size_, rows * cols, places};
  }

  int64_t size_;
  bool rounds_;
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
  }

  void transform(Engine& engine, const Step&,
                 const Batch& batch) const override {
    const MuonStack stack = facts_.stack_of(batch.dims);
    const int64_t count = batch.count * stack.count;
    const auto [rows, cols] = stack.shape;
    const ConstMatrices in = as_matrices(batch.fields[0], rows, cols, count);
    const Matrices out = as_matrices(batch.out, rows, cols, count);
    const MuonWay way = facts_.way(stack.shape);
    const bool tall = in.rows > in.cols;
    orthogonalize(engine, plan_, way, {.source = in, .transpose = tall},
                  {.out = out, .transpose = tall});
  }

  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    engine.apply(shard.weights, update, applied(step, shard.whole), shard.count,
                 shard.rounded);
  }

  std::unique_ptr<SharedTransform> share(Engine& engine, Arena& arena,
                                         MatrixShape shape,
                                         const TeamSeat& seat) const override {
    const MuonWay way = facts_.way(shape);
    if (way.strips == 1) return nullptr;
    return share_newton_schulz(engine, arena, plan_, way, shape, seat);
  }

  bool lets_gradients_move() const override {
    return l2_factor(decay_) == 0 && !cautious_;
  }

  // Makes one pass over memory before the products and none after: the first
  // fills the operand directly from gradient and momentum, and the last product
  // writes the weights. Cautious updates cannot be fused this way.
  void step_whole(Engine& engine, const Step& step,
                  const WholeTensors& tensors) const override {
    if (!lets_gradients_move() || !tensors.uncut())
      return Rule::step_whole(engine, step, tensors);
    const MuonStack stack = facts_.stack_of(tensors.dims);
    const auto count =
        static_cast<int64_t>(tensors.shards.size()) * stack.count;
    for (int64_t begin = 0; begin < count; begin += Places::kMost)
      step_places(engine, step, tensors,
                  Places(tensors, stack, begin,
                         std::min(Places::kMost, count - begin)));
  }

 private:
  void step_places(Engine& engine, const Step& step,
                   const WholeTensors& tensors, const Places& places) const {
    const MatrixShape shape = facts_.stack_of(tensors.dims).shape;
    const Apply apply = applied(step, tensors.dims);
    const bool tall = shape.rows > shape.cols;
    orthogonalize(engine, plan_, facts_.way(shape),
                  {.source = places.grads(dtype_, shape),
                   .momentum = places.momenta(dtype_, shape),
                   .blend = blend_,
                   .transpose = tall},
                  {.out = places.weights(dtype_, shape),
                   .apply = &apply,
                   .transpose = tall,
                   .rounded = places.rounded()});
  }

  Apply applied(const Step& step, const Dims& whole) const {
    MatrixShape shape = facts_.stack_of(whole).shape;
    if (scales_by_last_two_)
      shape = {whole[whole.size() - 2], whole[whole.size() - 1]};
    const double factor = shape_scale(scale_, shape) * scale_extra_;
    Apply apply = apply_coefficients(decay_, step, factor);
    apply.cautious = cautious_;
    return apply;
  }

  NewtonSchulzPlan plan_;
  Blend blend_;
  DecayOptions decay_;
  bool cautious_;
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

}  // namespace canzona
