#include "canzona/rules/shampoo/batch_step.h"

#include <cmath>

#include "canzona/rules/axes.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// With b3 = b1 the blend is the average itself; else it is the one that a decay
// of b3 in this step alone would have given.
Blend filter_blend(const ShampooOptions& options, int64_t t) {
  const double b1 = options.beta1;
  const double b3 = options.beta3;
  const double weights = options.bias_correction
                             ? 1 - b3 * std::pow(b1, static_cast<double>(t - 1))
                             : 1;
  return {.keep = b1,
          .add = 1 - b1,
          .from_grad = (1 - b3 / b1) / weights,
          .from_momentum = b3 / b1 / weights};
}

AdamCoefficients graft_coefficients(const ShampooOptions& options, int64_t t) {
  AdamCoefficients adam;
  const bool sum = options.grafting == Grafting::kAdagrad;
  const Average moment = average(sum ? 1 : options.grafting_beta2, t);
  adam.v_keep = moment.keep;
  adam.v_add = moment.add;
  if (options.grafting == Grafting::kAdam)
    adam.root_scale = 1 / std::sqrt(moment.correction);
  adam.epsilon = options.grafting_epsilon;
  adam.m_keep = 1;  // filter() has been there
  adam.m_add = 0;
  adam.from_moment = 0;
  adam.from_grad = 1;
  if (options.filters()) {
    const Blend blend = filter_blend(options, t);
    adam.from_moment = blend.from_momentum;
    adam.from_grad = blend.from_grad;
  }
  return adam;
}

}  // namespace

Average average(double beta, int64_t t) {
  if (beta == 1) return {1, 1, 1};
  return {beta, 1 - beta, 1 - std::pow(beta, static_cast<double>(t))};
}

BatchStep::BatchStep(Engine& engine, const ShampooOptions& options,
                     const ShampooLayout& layout, int64_t step,
                     const Batch& batch, BatchPart part)
    : engine_(engine),
      options_(options),
      layout_(layout),
      blocking_(layout.blocking()),
      step_(step),
      batch_(batch),
      part_(part),
      num_blocks_(blocking_.num_blocks()),
      elements_(blocking_.elements()),
      dtype_(batch.out.dtype),
      grad_(advanced(batch.fields[0], part.begin * elements_)),
      out_(advanced(batch.out, part.begin * elements_)) {}

void BatchStep::run() {
  const Arena::Scope scope(engine_.arena());
  if (layout_.num_factors() > 0) {
    for (int64_t b = 0; b < num_blocks_; ++b) accumulate(blocking_.block(b));
    if (refreshes()) refresh();
  }
  const ConstRun filtered = filter();
  if (options_.grafting != Grafting::kNone && warms_up()) {
    const ConstRun grafted = graft(filtered, out_);
    if (grafted.data != out_.data)
      engine_.copy(flat(out_, elements_), flat(grafted, elements_));
    return;
  }
  ConstRun grafted;
  if (options_.grafting != Grafting::kNone)
    grafted = graft(filtered, take(elements_));
  for (int64_t b = 0; b < num_blocks_; ++b)
    precondition(blocking_.block(b), filtered, grafted);
}

int64_t BatchStep::scheduled_step() const {
  const int period = options_.refresh.period;
  return step_ - (period - batch_.phase % period) % period;
}

bool BatchStep::refreshes() const {
  const int64_t t = scheduled_step();
  const int64_t start = options_.start_step.value();
  return t == start || (t > start && t % options_.refresh.period == 0);
}

bool BatchStep::warms_up() const {
  return !options_.start_step || scheduled_step() < *options_.start_step;
}

Run BatchStep::take(int64_t elements) {
  return {engine_.arena().take(part_.count * elements * size_of(dtype_)),
          dtype_};
}

Run BatchStep::state(int number, int64_t elements) const {
  return advanced(batch_.states[static_cast<size_t>(number)],
                  part_.begin * elements);
}

Matrices BatchStep::in_stacks(int number, const FactorPlace& place) const {
  const int64_t d = place.side;
  return across_stacks(state(number, place.stack * d * d), {d, d, place.stack},
                       place.place, part_.count);
}

Matrices BatchStep::factor(const FactorPlace& place) const {
  return in_stacks(place.first_state, place);
}

Matrices BatchStep::inv_root(const FactorPlace& place) const {
  return in_stacks(place.first_state + 1, place);
}

ConstMatrices BatchStep::flat(ConstRun run, int64_t elements) const {
  return as_row(run, part_.count * elements);
}

Matrices BatchStep::flat(Run run, int64_t elements) const {
  return as_row(run, part_.count * elements);
}

ConstRun BatchStep::packed(const TensorBlock& block, ConstRun tensor) {
  if (num_blocks_ == 1) return tensor;
  const Run room = take(block.sizes.product());
  copy_out(engine_, room, tensor, blocking_, block, part_.count);
  return room;
}

Average BatchStep::statistics() const {
  if (options_.drop_weighting) return {options_.beta2, 1, 1};
  return average(options_.beta2, step_);
}

void BatchStep::accumulate(const TensorBlock& block) {
  const Arena::Scope scope(engine_.arena());
  const ConstRun g = packed(block, grad_);
  const Average moment = statistics();
  for (int axis = 0; axis < blocking_.order(); ++axis) {
    if (!layout_.has_factor(axis)) continue;
    const Arena::Scope inner(engine_.arena());
    const FactorPlace place = layout_.factors().place(block, axis);
    add_statistics(engine_, factor(place), moment.keep, moment.add,
                   options_.kl ? kl_grad(block, axis, g) : g,
                   block.sizes.span(), axis);
  }
}

ConstRun BatchStep::kl_grad(const TensorBlock& block, int axis, ConstRun grad) {
  for (int other = 0; other < blocking_.order(); ++other) {
    if (other == axis || !layout_.has_factor(other)) continue;
    const Run room = take(block.sizes.product());
    rotate(engine_, room, grad, block.sizes.span(), other,
           inv_root(layout_.factors().place(block, other)), Op::kNone);
    grad = room;
  }
  return grad;
}

ConstRun BatchStep::filter() {
  if (!options_.filters()) return grad_;
  const Run filtered = take(elements_);
  engine_.momentum({.grad = grad_,
                    .weights = {},
                    .l2 = 0,
                    .momentum = state(layout_.filtered_grad(), elements_),
                    .out = filtered,
                    .blend = filter_blend(options_, step_)},
                   part_.count * elements_);
  return filtered;
}

ConstRun BatchStep::graft(ConstRun filtered, Run room) {
  if (!options_.grafts_from_moment()) return filtered;
  Run average_grad;
  if (options_.filters())
    average_grad = state(layout_.filtered_grad(), elements_);
  engine_.adam(grad_, average_grad, state(layout_.grafting(), elements_), room,
               graft_coefficients(options_, step_), part_.count * elements_);
  return room;
}

void BatchStep::precondition(const TensorBlock& block, ConstRun filtered,
                             ConstRun grafted) {
  constexpr double kNormFloor = 1e-16;
  const Arena::Scope scope(engine_.arena());
  const int64_t count = block.sizes.product();
  const bool whole = num_blocks_ == 1;
  const Run rooms[] = {take(count), whole ? out_ : take(count)};
  // Axes write the rooms in turn, so that the last one writes rooms[1].
  int room = layout_.num_factors() % 2;
  ConstRun from = packed(block, filtered);
  for (int axis = 0; axis < blocking_.order(); ++axis) {
    if (!layout_.has_factor(axis)) continue;
    const FactorPlace place = layout_.factors().place(block, axis);
    rotate(engine_, rooms[room], from, block.sizes.span(), axis,
           inv_root(place), Op::kNone);
    from = rooms[room];
    room ^= 1;
  }
  const Run direction = rooms[1];
  if (from.data != direction.data)
    engine_.copy(flat(direction, count), flat(from, count));
  if (grafted.data != nullptr)
    engine_.scale_to_norm(
        as_matrices(direction, 1, count, part_.count),
        as_matrices(packed(block, grafted), 1, count, part_.count), kNormFloor);
  if (!whole)
    copy_back(engine_, out_, direction, blocking_, block, part_.count);
}

}  // namespace canzona
