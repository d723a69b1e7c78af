#include "canzona/sim/mesh_layout.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/plan/predict/summary.h"

namespace canzona::sim {

PlanOptions options_of(const MeshQuestion& question, const MeshChoice& choice) {
  PlanOptions options = question.options;
  options.zero.sizes = choice.dense;
  options.zero.experts = choice.experts;
  options.zero.reach = choice.reach;
  return options;
}

ActivationLoad activation_load(const MeshQuestion& question,
                               const MeshChoice& choice) {
  return {.tokens = question.activations ? choice.tokens : 0,
          .num_micro_batches = choice.num_micro_batches,
          .experts_per_token = question.work.compute.experts_per_token,
          .dtype = question.activations.value_or(DType::kBf16),
          .recompute = choice.recompute,
          .experts_assumed = question.experts_assumed};
}

MemoryTerms terms_of(const MeshQuestion& question, const MeshChoice& choice,
                     const Model* outline) {
  const ActivationLoad load = activation_load(question, choice);
  const Model& model = outline != nullptr ? *outline : *question.model;
  return {load,
          question.activation_bytes
              ? *question.activation_bytes
              : activation_bytes(model, choice.mesh, load),
          question.gradients, question.options.memory_cap_bytes};
}

Workload work_of(const MeshQuestion& question, const MeshChoice& choice) {
  Workload work = question.work;
  work.compute.tokens = choice.tokens;
  work.compute.recompute = choice.recompute;
  work.num_micro_batches = choice.num_micro_batches;
  work.rings = false;  // not a reach of plans
  return work;
}

Plan shape_of(const MeshQuestion& question, const Mesh& mesh) {
  Plan shape;
  shape.model = *question.model;
  shape.mesh = mesh;
  shape.options = question.options;
  return shape;
}

namespace {

PlanDraft draft_of(const MeshQuestion& question, const MeshChoice& choice,
                   int64_t cap) {
  PlanRequest request{*question.model, choice.mesh, *question.rule,
                      options_of(question, choice), question.cost_table};
  request.options.memory_cap_bytes = cap;
  // Whether teams pay is decided between finished plans.
  PlanDraft draft = request.options.teams == kTeamsOff
                        ? draft_plan(request)
                        : PlanDraft{.plan = make_plan(request)};
  if (question.cost_basis) {
    draft.plan.cost_basis = *question.cost_basis;
    for (PlanPart& part : draft.plan.parts)
      part.cost_basis = *question.cost_basis;
  }
  return draft;
}

std::vector<RankCost> memory_of(const Plan& plan) {
  std::vector<std::vector<RankCost>> of_parts;
  for (const PlanPart& part : plan.parts)
    of_parts.push_back(predict_without_times(part));
  return sum_of_parts(plan, std::move(of_parts));
}

int64_t gradients_in(DType type, int64_t bytes_in_fp32) {
  return bytes_in_fp32 * size_of(type) / kBytesPerFp32;
}

}  // namespace

LayoutPlan::LayoutPlan(const MeshQuestion& question, const MeshChoice& choice,
                       int64_t cap, std::optional<int64_t> activations)
    : question_(question) {
  const PlanDraft draft = draft_of(question, choice, cap);
  const Plan& plan = draft.plan;
  chooses_prefetch_ = draft.chooses_prefetch;
  heeds_cap_ = !cuts_experts_apart(plan);
  slots_ = slot_bytes(plan);
  bucket_unevenness_ = bucket_unevenness(plan);
  std::vector<RankCost> costs;
  if (activations) {
    count_memory(plan, memory_of(plan));
    if (!fits(*activations)) return;
    costs = predict(plan);
  } else {
    costs = predict(plan);
    count_memory(plan, costs);
  }
  iterations_ = stage_iterations(plan, work_of(question, choice), costs);
  for (const StageIteration& one : iterations_) {
    int32_t slots = 1;
    for (const PoolSizes& pools : stages_[index(one.stage)].pools)
      slots = std::max(slots, pools.gather_slots);
    held_slots_.push_back(one.work.gather_slots - slots);
  }
}

void LayoutPlan::count_memory(const Plan& plan,
                              const std::vector<RankCost>& costs) {
  const auto per_stage = static_cast<size_t>(plan.mesh.ranks_per_stage());
  int64_t least = INT64_MAX;
  for (size_t r = 0; r < costs.size(); ++r) {
    const RankMemory& memory = costs[r].memory;
    if (r % per_stage == 0) stages_.push_back({.fullest = memory});
    Stage& stage = stages_.back();
    if (memory.total() > stage.fullest.total()) stage.fullest = memory;
    taken_ = std::max(taken_, memory.total().value());
    least = std::min(least, memory.gradients.value());
  }
  saved_gradients_ = least - gradients_in(question_.gradients, least);
  for (size_t s = 0; s < stages_.size(); ++s)
    for (const PlanPart& part : kinds_of_parts(plan))
      stages_[s].pools.push_back(pool_sizes(part, static_cast<int32_t>(s)));
}

bool LayoutPlan::fits(int64_t activations) const {
  const int64_t cap = question_.options.memory_cap_bytes;
  return cap == 0 || least_bytes() + activations <= cap;
}

int64_t LayoutPlan::left_of_cap(int64_t activations) const {
  const int64_t cap = question_.options.memory_cap_bytes;
  return cap == 0 ? 0 : cap - activations + saved_gradients_;
}

RankMemory LayoutPlan::memory_with(int32_t prefetch, DType gradients) const {
  const int64_t parameter = size_of(question_.options.parameters);
  RankMemory most;
  for (const Stage& stage : stages_) {
    RankMemory own = stage.fullest;
    own.gradients = Bytes(gradients_in(gradients, own.gradients.value()));
    own.pools = Bytes(0);
    for (const PoolSizes& pools : stage.pools) {
      const PoolSizes ahead = pools.ahead(prefetch);
      own.pools += Bytes(ahead.gather_bytes(parameter) + ahead.scatter_bytes());
    }
    if (own.total() > most.total()) most = own;
  }
  return most;
}

WeighedMesh LayoutPlan::weigh(const MeshChoice& choice, const MicroBatch& batch,
                              int64_t activations) const {
  const int64_t cap = question_.options.memory_cap_bytes;
  const int32_t prefetch =
      !chooses_prefetch_ ? 0
      : cap == 0
          ? kUsualPrefetch
          : slots_.fit_in(left_of_cap(activations) - taken_, *question_.model);
  std::vector<IterationPrediction> stages;
  for (size_t i = 0; i < iterations_.size(); ++i) {
    StageIteration one = iterations_[i];
    int32_t gathers = 1, scatters = 1;
    for (const PoolSizes& pools : stages_[index(one.stage)].pools) {
      const PoolSizes ahead = pools.ahead(prefetch);
      gathers = std::max(gathers, ahead.gather_slots);
      scatters = std::max(scatters, ahead.scatter_slots);
    }
    one.work.gather_slots = gathers + held_slots_[i];
    one.work.scatter_slots = scatters + held_slots_[i];
    stages.push_back(one.predict(batch, choice.num_micro_batches));
  }
  WeighedMesh out{.choice = choice, .bucket_unevenness = bucket_unevenness_};
  if (has_times()) {
    const IterationPrediction slowest = slowest_of_stages(stages);
    out.time = slowest.time;
    out.stage = slowest.stage;
    out.slow_bytes = slowest.slow_bytes;
    out.fast_bytes = slowest.fast_bytes;
  }
  out.memory = memory_with(prefetch, question_.gradients);
  out.activations = activations;
  out.fits = cap == 0 || out.memory_bytes() <= cap;
  return out;
}

namespace {

// Returns what a card can reach at most, or its rate if that is not known.
double peak_of(const Workload& work) {
  return work.peak_flops > 0 ? work.peak_flops : work.compute.flops_per_second;
}

// Returns the flops of the model in an iteration, without recomputation.
double model_flops(const MeshQuestion& question) {
  ComputeLoad load = question.work.compute;
  load.tokens = question.global_batch;
  load.flops_per_second = load.attention_flops_per_second = 1;
  load.tensor_parallel = 1;
  load.recompute = false;
  double flops = 0;
  for (const PassSeconds& passes : compute_seconds(*question.model, load))
    flops += passes.forward + passes.backward;
  return flops;
}

}  // namespace

void describe(const MeshQuestion& question, WeighedMesh& weighed) {
  const MeshChoice& choice = weighed.choice;
  const Plan shape = shape_of(question, choice.mesh);
  const Workload work = work_of(question, choice);
  const auto batches = static_cast<double>(choice.num_micro_batches);
  const std::vector<TrainerCall> calls = usual_calls(shape, weighed.stage, 1);
  const auto seconds_of = [&](auto add) {
    std::vector<PassSeconds> modules(index(num_modules(shape.model)));
    add(shape, work, modules);
    double sum = 0;
    for (const TrainerCall& call : calls)
      if (call.kind == TrainerCall::Kind::kGradReady)
        sum += modules[index(call.module)].forward +
               modules[index(call.module)].backward;
    return sum * batches;
  };
  MeshTimeParts& parts = weighed.parts;
  parts.tp_sums = seconds_of(add_tp_sums);
  parts.expert_exchanges = seconds_of(add_token_exchanges);
  const int borders = (weighed.stage > 0 ? 1 : 0) +
                      (weighed.stage + 1 < choice.mesh.pp ? 1 : 0);
  parts.stage_sends = borders * batches * exposed_sends(shape, work);
  const IterationTime& time = weighed.time;
  parts.compute = time.compute_seconds - parts.tp_sums -
                  parts.expert_exchanges - parts.stage_sends;
  parts.gathers = time.waited_parameters;
  parts.scatters = time.waited_gradients;
  parts.sums = time.waited_step;
  parts.bubble = time.bubble_seconds;
  parts.step = time.step_seconds;
  if (weighed.seconds() == 0) return;
  weighed.tokens_per_second =
      static_cast<double>(question.global_batch) / weighed.seconds();
  weighed.share_of_peak =
      model_flops(question) /
      (weighed.seconds() * question.ranks * peak_of(question.work));
}

WeighedMesh weigh_mesh(const MeshQuestion& question, const MeshChoice& choice) {
  const MicroBatch batch = micro_batch_of(shape_of(question, choice.mesh),
                                          work_of(question, choice));
  const int64_t activations = terms_of(question, choice).activations;
  const LayoutPlan layout(question, choice);
  WeighedMesh out = weigh_layout(layout, question, choice, batch, activations);
  describe(question, out);
  return out;
}

// A plan that does not fit may, if the strategy is told what it has.
WeighedMesh weigh_layout(const LayoutPlan& layout, const MeshQuestion& question,
                         const MeshChoice& choice, const MicroBatch& batch,
                         int64_t activations) {
  if (!layout.has_times() && layout.fits(activations))
    return LayoutPlan(question, choice).weigh(choice, batch, activations);
  WeighedMesh out = layout.weigh(choice, batch, activations);
  const int64_t left = layout.left_of_cap(activations);
  if (out.fits || !layout.heeds_cap() || left <= 0) return out;
  std::optional<int64_t> only_if_fits;
  if (!layout.has_times()) only_if_fits = activations;
  const LayoutPlan capped(question, choice, left, only_if_fits);
  if (capped.least_bytes() >= layout.least_bytes()) return out;
  return capped.weigh(choice, batch, activations);
}

}  // namespace canzona::sim
