#include "canzona/rules/shampoo/batch_step.h"

#include <algorithm>
#include <cmath>

#include "canzona/rules/runs.h"
#include "canzona/rules/shampoo/roots.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

// With b3 = b1 the blend is the average itself; otherwise it is the average
// that a decay of b3 in this step alone would have given.
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
  adam.m_keep = 1;  // filter() has updated it
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

Average factor_average(const ShampooOptions& options, int64_t step) {
  if (options.drop_weighting) return {options.beta2, 1, 1};
  return average(options.beta2, step);
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
    add_statistics_of_blocks();
    if (options_.is_refresh(step_, batch_.phase))
      for (int axis = 0; axis < blocking_.order(); ++axis) refresh(axis);
  }
  direction();
}

void BatchStep::add_statistics_of_blocks() {
  for (int64_t b = 0; b < num_blocks_; ++b) accumulate(blocking_.block(b));
}

void BatchStep::direction() {
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

bool BatchStep::warms_up() const {
  return !options_.start_step ||
         options_.scheduled_step(step_, batch_.phase) < *options_.start_step;
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

void BatchStep::accumulate(const TensorBlock& block) {
  const Arena::Scope scope(engine_.arena());
  const ConstRun g = packed(block, grad_);
  const Average moment = factor_average(options_, step_);
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
  // Axes alternate between the rooms, so that the last one writes rooms[1].
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

namespace {

// Shows the hook the roots of the site's factors from number `first` on.
void ask_hook(Engine& engine, DecompositionHook& hook, const RefreshSite& site,
              int64_t first, Matrices roots, std::span<Outcome> outcomes) {
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) {
      HostCopy root(engine, roots.at(i));
      if (hook.inverse_root(site.factor(first + i), root.view()))
        root.put_back();
      else
        outcomes[static_cast<size_t>(i)] = {false, "refused by a check"};
    }
  });
}

// Factors are multiplied by these before the root is taken.
PerTensor<double> factor_scales(Engine& engine, const RootRefresh& task,
                                double least_trace) {
  PerTensor<double> scales(task.factor.count, 1 / task.correction);
  if (!task.scales_by_trace) return scales;
  PerTensor<double> traces(task.factor.count);
  engine.traces(task.factor, traces.span());
  for (int64_t i = 0; i < task.factor.count; ++i) {
    const double trace = std::max(traces[i] * scales[i], least_trace);
    if (trace != 0) scales[i] /= std::sqrt(trace);
  }
  return scales;
}

// Computes in `dtype`; results are in the type of `roots`.
void find_roots(Engine& engine, Matrices roots, ConstMatrices factors,
                DType dtype, InversePower power, const RootOptions& options,
                std::span<Outcome> outcomes) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t d = factors.rows;
  const ConstMatrices a = in_type(engine, factors, dtype);
  const bool other = dtype != roots.dtype;
  const Matrices x = other ? arena.matrices(dtype, d, d, a.count) : roots;
  PerTensor<RootStatus> statuses(a.count);
  inverse_roots(engine, x, a, power, options, statuses.span());
  for (int64_t i = 0; i < a.count; ++i)
    outcomes[static_cast<size_t>(i)] = {statuses[i].succeeded,
                                        statuses[i].reason};
  if (!other) return;
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    engine.convert(roots.part(begin, size), x.part(begin, size));
  });
}

}  // namespace

PerTensor<Outcome> refresh_roots(Engine& engine, const RootRefresh& task,
                                 const RootOptions& options,
                                 DecompositionHook* hook) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t d = task.factor.rows;
  const int64_t count = task.factor.count;
  const Matrices factors = arena.matrices(task.factor.dtype, d, d, count);
  const Matrices roots = arena.matrices(task.factor.dtype, d, d, count);
  engine.axpby(factors, factor_scales(engine, task, options.epsilon).span(),
               task.factor, 0.0);

  PerTensor<Outcome> outcomes(count);
  refresh(engine, task.site, factors, roots, outcomes.span(),
          [&](DType dtype, int64_t begin, std::span<Outcome> tried) {
            const int64_t size = std::ssize(tried);
            const Matrices some = roots.part(begin, size);
            find_roots(engine, some, factors.part(begin, size), dtype,
                       task.power, options, tried);
            if (hook != nullptr)
              ask_hook(engine, *hook, task.site, begin, some, tried);
          });
  for_each_success(outcomes.span(), [&](int64_t begin, int64_t size) {
    engine.copy(task.root.part(begin, size), roots.part(begin, size));
  });
  return outcomes;
}

namespace {

// A step of Shampoo refreshes all factors of one length along an axis together,
// over all blocks of all tensors, up to the engine's batch width.

// The engine's batch width, unless the iterations' scratch, several times the
// size of the factors, would grow too large.
int64_t most_together(const Engine& engine, int64_t side) {
  constexpr int64_t kMostElements = int64_t{1} << 26;
  const int64_t by_size = std::max<int64_t>(1, kMostElements / (side * side));
  return std::clamp<int64_t>(std::min(engine.batch_width(), by_size), 1,
                             kMostTogether);
}

}  // namespace

struct BatchStep::Chunk {
  int axis = 0;
  int64_t tensor = 0, tensors = 1;
  // All places of a stack, unless the chunk has only one tensor.
  PerTensor<int64_t> blocks{0};
  int64_t places = 1;
  FactorPlace first;  // of the first block

  int64_t count() const { return tensors * places; }
};

void BatchStep::refresh(int axis) {
  for (size_t kind = 0; kind < blocking_.side(axis).kinds().size(); ++kind)
    if (layout_.has_factor(axis)) refresh_kind(axis, kind);
}

void BatchStep::refresh_kind(int axis, size_t kind) {
  const int64_t stack = blocking_.stack_size(axis, kind);
  if (stack == 0) return;
  const int64_t most =
      most_together(engine_, blocking_.side(axis).kinds()[kind].length);
  Chunk chunk;
  chunk.axis = axis;
  const int64_t tensors = std::max<int64_t>(1, most / stack);
  for (int64_t t = 0; t < part_.count; t += tensors)
    for (int64_t p = 0; p < stack; p += most) {
      chunk.tensor = t;
      chunk.tensors = std::min(tensors, part_.count - t);
      chunk.places = std::min(most, stack - p);
      chunk.blocks = PerTensor<int64_t>(chunk.places);
      for (int64_t i = 0; i < chunk.places; ++i)
        chunk.blocks[i] = blocking_.block_at(axis, kind, p + i);
      chunk.first =
          layout_.factors().place(blocking_.block(chunk.blocks[0]), axis);
      refresh_chunk(chunk);
    }
}

// Roots need full fp32 precision: with bf16x3 Newton's iteration has errors of
// up to 1 % where the damping is small.
void BatchStep::refresh_chunk(const Chunk& chunk) {
  const ProductsScope products(engine_,
                               exact_products_of(options_.splits_products),
                               products_of(options_.splits_products));
  const Arena::Scope scope(engine_.arena());
  const Average moment = factor_average(options_, step_);
  const FactorPlace& at = chunk.first;
  const int64_t each = at.side * at.side;
  const auto matrices = [&](int number) {
    const Run run = advanced(state(number, at.stack * each),
                             (chunk.tensor * at.stack + at.place) * each);
    return as_matrices(run, at.side, at.side, chunk.count());
  };
  PerTensor<int64_t> blocks = chunk.blocks;
  const Matrices failures =
      engine_.arena().matrices(dtype_, 1, 1, chunk.count());
  for_each_counter(chunk, failures, [&](Matrices kept, Matrices together) {
    engine_.copy(together, kept);
  });
  const auto put_back = [&] {
    for_each_counter(chunk, failures, [&](Matrices kept, Matrices together) {
      engine_.copy(kept, together);
    });
  };
  try {
    refresh_roots(
        engine_,
        {.site = {.rule = "shampoo",
                  .result = "root",
                  .step = step_,
                  .part = {part_.begin + chunk.tensor, 0, chunk.axis},
                  .blocks = blocks.span(),
                  .failures = failures},
         .factor = matrices(at.first_state),
         .correction = options_.bias_correction ? moment.correction : 1,
         .scales_by_trace = options_.trace_scaling,
         .power = options_.power(blocking_.order(), chunk.axis),
         .root = matrices(at.first_state + 1)},
        options_.root, batch_.hook);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

// Calls copy(kept, together) for each block with its counters in the state and
// those in the chunk, one per tensor.
template <class Copy>
void BatchStep::for_each_counter(const Chunk& chunk, Matrices together,
                                 const Copy& copy) {
  const int64_t counters = layout_.factors().num_counters();
  const Run failures = advanced(state(layout_.refresh_failures(), counters),
                                chunk.tensor * counters);
  for (int64_t i = 0; i < chunk.places; ++i) {
    const TensorBlock block = blocking_.block(chunk.blocks[i]);
    const FactorPlace place = layout_.factors().place(block, chunk.axis);
    Matrices some = together.part(i, 1);
    some.count = chunk.tensors;
    some.matrix_stride = chunk.places * together.matrix_stride;
    copy(across_stacks(failures, {1, 1, counters}, place.failures,
                       chunk.tensors),
         some);
  }
}

}  // namespace canzona::rules
