// SOAP's three stages. All matrix arithmetic is in update.h, which handles one
// block of several tensors at a time.
#include "canzona/rules/rule.h"

#include <cmath>

#include "canzona/rules/options.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/soap/facts.h"
#include "canzona/rules/soap/shared.h"
#include "canzona/rules/soap/update.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

DecayOptions soap_decay(const RuleOptions& options) {
  return {word_option(options, "decay_form"),
          word_option(options, "decay_order"),
          real_option(options, "weight_decay"),
          real_option(options, "learning_rate")};
}

// Processes the tensors [begin, begin + count) of a batch, block by block.
class PartCall {
 public:
  PartCall(Engine& engine, const SoapOptions& soap, const SoapLayout& layout,
           const Step& step, const Batch& batch, int64_t begin, int64_t count)
      : engine_(engine),
        soap_(soap),
        layout_(layout),
        blocking_(layout.blocking()),
        step_(step),
        batch_(batch),
        begin_(begin),
        count_(count),
        elements_(blocking_.elements()) {}

  void run() {
    if (const SoapCut cut = layout_.cut(soap_); cut.strips > 1)
      return run_strips(cut);
    const int64_t num_blocks = blocking_.num_blocks();
    for (int64_t number = 0; number < num_blocks; ++number) {
      const Arena::Scope scope(engine_.arena());
      const TensorBlock block = blocking_.block(number);
      SoapBlockRuns runs = whole();
      if (num_blocks > 1) runs = apart(runs, block);
      runs.dims = block.sizes.span();
      runs.count = count_;
      add_factors(block, runs);
      soap_update(engine_, soap_, call_of(number), runs);
      if (num_blocks > 1) put_back(runs, block);
    }
    const int64_t updates = soap_.updates(step_.step);
    if (updates > 0 && elements_ > 0) bound_update(updates);
  }

 private:
  // A matrix in strips is one block.
  void run_strips(const SoapCut& cut) {
    const Arena::Scope scope(engine_.arena());
    const AxisSizes& sizes = blocking_.sizes();
    const SoapStrips strips = soap_strips({sizes[0], sizes[1]}, cut, {});
    SoapBlockRuns runs = whole();
    runs.dims = sizes.span();
    runs.count = count_;
    add_factors(blocking_.block(0), runs);
    soap_update_by_strips(engine_, soap_, call_of(0), strips, runs);
  }

  SoapCall call_of(int64_t block) const {
    return {.step = step_.step,
            .phase = batch_.phase,
            .part = {.tensor = begin_, .block = block},
            .hook = batch_.hook};
  }
  void add_factors(const TensorBlock& block, SoapBlockRuns& runs) const {
    for (int axis = 0; axis < blocking_.order(); ++axis)
      if (layout_.factors().has_factor(axis))
        runs.factors[static_cast<size_t>(axis)] =
            factor(layout_.factors().place(block, axis));
  }

  // Normalizes and bounds the length of whole tensors' updates, regardless of
  // blocks.
  void bound_update(int64_t updates) {
    constexpr double kLeastRms = 1e-30;  // added to divisors
    constexpr double kMoreRms = 1e-7;    // added to the rms that is bounded
    const Arena::Scope scope(engine_.arena());
    const double root = std::sqrt(static_cast<double>(elements_));
    const Matrices update = as_matrices(whole().out, 1, elements_, count_);
    if (soap_.normalizes_update) {
      const double norm = root * soap_update_scale(soap_, updates);
      const Matrices wanted =
          engine_.arena().matrices(update.dtype, 1, 1, count_);
      engine_.set_identity(wanted, norm);
      engine_.scale_to_norm(update, wanted, norm * kLeastRms);
    }
    if (soap_.max_update_rms > 0)
      engine_.limit_norms(update, root * soap_.max_update_rms, root * kMoreRms);
  }

  // A state with as many elements as the tensors.
  Run state(int number) const {
    return advanced(batch_.states[static_cast<size_t>(number)],
                    begin_ * elements_);
  }

  SoapBlockRuns whole() const {
    SoapBlockRuns runs;
    runs.factor_grad = advanced(batch_.fields.front(), begin_ * elements_);
    runs.grad = advanced(batch_.fields.back(), begin_ * elements_);
    if (soap_.has_first_moment()) runs.first_moment = state(0);
    runs.second_moment = state(layout_.exp_avg_sq());
    if (soap_.has_grafting_moment())
      runs.grafting_moment = state(layout_.grafting());
    runs.out = advanced(batch_.out, begin_ * elements_);
    return runs;
  }

  // The runs of a block, copied to contiguous memory.
  SoapBlockRuns apart(const SoapBlockRuns& tensor, const TensorBlock& block) {
    SoapBlockRuns runs;
    const bool one_field = batch_.fields.size() == 1;
    runs.factor_grad = copied(tensor.factor_grad, block);
    runs.grad = one_field ? runs.factor_grad : copied(tensor.grad, block);
    runs.first_moment = copied(tensor.first_moment, block);
    runs.second_moment = copied(tensor.second_moment, block);
    runs.grafting_moment = copied(tensor.grafting_moment, block);
    runs.out = taken(block);
    return runs;
  }
  Run taken(const TensorBlock& block) {
    const DType dtype = batch_.out.dtype;
    const int64_t elements = count_ * block.sizes.product();
    return {engine_.arena().take(elements * size_of(dtype)), dtype};
  }
  Run copied(ConstRun from, const TensorBlock& block) {
    if (from.data == nullptr) return {};
    const Run to = taken(block);
    copy_out(engine_, to, from, blocking_, block, count_);
    return to;
  }

  void put_back(const SoapBlockRuns& runs, const TensorBlock& block) {
    const SoapBlockRuns tensor = whole();
    const auto put = [&](Run to, Run from) {
      if (from.data != nullptr)
        copy_back(engine_, to, from, blocking_, block, count_);
    };
    put(tensor.first_moment, runs.first_moment);
    put(tensor.second_moment, runs.second_moment);
    put(tensor.grafting_moment, runs.grafting_moment);
    put(tensor.out, runs.out);
  }

  SoapFactor factor(const FactorPlace& at) const {
    const int64_t n = at.side;
    SoapFactor factor;
    factor.factor = matrices_at(at.first_state, at, n);
    factor.basis = matrices_at(at.first_state + 1, at, n);
    if (soap_.keeps_eigenvalues())
      factor.eigenvalues = matrices_at(at.first_state + 2, at, 1);
    factor.failures =
        across(layout_.refresh_failures(),
               {1, 1, layout_.factors().num_counters()}, at.failures);
    return factor;
  }
  Matrices matrices_at(int number, const FactorPlace& at, int64_t rows) const {
    return across(number, {rows, at.side, at.stack}, at.place);
  }
  // Returns, for each tensor, the matrix at that place of a state.
  Matrices across(int number, const StackShape& shape, int64_t place) const {
    const Run run = batch_.states[static_cast<size_t>(number)];
    const int64_t each = shape.stack * shape.rows * shape.cols;
    return across_stacks(advanced(run, begin_ * each), shape, place, count_);
  }

  Engine& engine_;
  const SoapOptions& soap_;
  const SoapLayout& layout_;
  const Blocking& blocking_;
  const Step& step_;
  const Batch& batch_;
  const int64_t begin_;
  const int64_t count_;
  const int64_t elements_;
};

class SoapRule final : public RuleOf<SoapFacts> {
 public:
  SoapRule(const RuleOptions& options, DType dtype)
      : RuleOf(options, dtype),
        soap_(facts_.read_options()),
        decay_(soap_decay(facts_.options())) {}

  void prepare(Engine& engine, const Step&, const Shard& shard,
               std::span<const Run> fields) const override {
    for (Run field : fields)
      engine.copy(as_row(field, shard.count), as_row(shard.grad, shard.count));
    if (soap_.l2)
      engine.axpby(as_row(fields.back(), shard.count), l2_factor(decay_),
                   as_row(ConstRun(shard.weights), shard.count), 1.0);
  }

  void transform(Engine& engine, const Step& step,
                 const Batch& batch) const override {
    const SoapLayout layout(soap_, batch.dims);
    const ProductsScope products(engine, products_of(soap_.splits_products));
    for_each_part(engine, batch.count, [&](int64_t begin, int64_t count) {
      PartCall(engine, soap_, layout, step, batch, begin, count).run();
    });
  }

  // A first step that only finds a basis changes no weights, not even by decay.
  void apply(Engine& engine, const Step& step, const Shard& shard,
             ConstRun update) const override {
    if (soap_.updates(step.step) == 0) return;
    engine.apply(shard.weights, update, apply_coefficients(decay_, step, 1),
                 shard.count, shard.rounded);
  }

  std::unique_ptr<SharedTransform> share(Engine& engine, Arena& arena,
                                         MatrixShape shape,
                                         const TeamSeat& seat) const override {
    const int64_t dims[] = {shape.rows, shape.cols};
    const SoapLayout layout(soap_, dims);
    if (layout.helped_axis(soap_) >= 0)
      return help_soap(engine, arena, soap_, layout, seat, dtype_);
    const SoapCut cut = layout.cut(soap_);
    if (cut.strips == 1) return nullptr;
    return share_soap(engine, soap_, shape, cut, seat, dtype_);
  }

  // The gradient itself is the field if nothing is added to it.
  void step_whole(Engine& engine, const Step& step,
                  const WholeTensors& tensors) const override {
    if (soap_.l2 || tensors.shards.size() != 1)
      return Rule::step_whole(engine, step, tensors);
    const Arena::Scope scope(engine.arena());
    transform_and_apply(engine, step, tensors, {&tensors.shards[0].grad, 1},
                        take(engine, tensors.elements()));
  }

 private:
  SoapOptions soap_;
  DecayOptions decay_;
};

}  // namespace

std::unique_ptr<Rule> make_soap_rule(const RuleOptions& options, DType dtype) {
  return std::make_unique<SoapRule>(options, dtype);
}

}  // namespace canzona::rules
