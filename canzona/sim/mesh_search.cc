#include "canzona/sim/mesh_search.h"

#include <algorithm>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/memory_floor.h"

namespace canzona {

PlanOptions options_of(const MeshQuestion& question, const MeshChoice& choice) {
  PlanOptions options = question.options;
  options.zero.sizes = choice.dense;
  options.zero.experts = choice.experts;
  options.zero.reach = choice.reach;
  return options;
}

MemoryTerms terms_of(const MeshQuestion& question, const MeshChoice& choice) {
  const ActivationLoad load{
      .tokens = question.activations ? choice.tokens : 0,
      .num_micro_batches = choice.num_micro_batches,
      .experts_per_token = question.work.compute.experts_per_token,
      .dtype = question.activations.value_or(DType::kBf16),
      .recompute = choice.recompute,
      .experts_assumed = question.experts_assumed};
  return {load, activation_bytes(*question.model, choice.mesh, load),
          question.gradients, question.options.memory_cap_bytes};
}

Workload work_of(const MeshQuestion& question, const MeshChoice& choice) {
  Workload work = question.work;
  work.compute.tokens = choice.tokens;
  work.compute.recompute = choice.recompute;
  work.num_micro_batches = choice.num_micro_batches;
  return work;
}

namespace {

// Adds up the passes that the slowest stage executes once per micro-batch.
MeshTimeParts parts_of(const Plan& plan, const Workload& work,
                       const IterationTime& time, int32_t stage) {
  MeshTimeParts parts;
  const auto batches = static_cast<double>(work.num_micro_batches);
  const auto seconds_of = [&](const std::vector<PassSeconds>& modules) {
    double sum = 0;
    for (const TrainerCall& call : usual_calls(plan, stage, 1))
      if (call.kind == TrainerCall::Kind::kGradReady) {
        const PassSeconds& module = modules[static_cast<size_t>(call.module)];
        sum += module.forward + module.backward;
      }
    return sum * batches;
  };
  const auto modules = static_cast<size_t>(plan.model.num_layers) + 2;
  std::vector<PassSeconds> sums(modules), exchanges(modules);
  add_tp_sums(plan, work, sums);
  add_token_exchanges(plan, work, exchanges);
  parts.tp_sums = seconds_of(sums);
  parts.expert_exchanges = seconds_of(exchanges);
  const int borders = (stage > 0 ? 1 : 0) + (stage + 1 < plan.mesh.pp ? 1 : 0);
  parts.stage_sends = borders * batches * exposed_sends(plan, work);
  parts.compute = std::max(0.0, time.compute_seconds - parts.tp_sums -
                                    parts.expert_exchanges - parts.stage_sends);
  parts.gathers = time.waited_parameters;
  parts.scatters = time.waited_gradients;
  parts.sums = time.waited_step;
  parts.bubble = time.bubble_seconds;
  parts.step = time.step_seconds;
  return parts;
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

WeighedMesh weigh_mesh(const MeshQuestion& question, const MeshChoice& choice) {
  const PlanRequest request{*question.model, choice.mesh, *question.rule,
                            options_of(question, choice), question.cost_table};
  const MemoryTerms terms = terms_of(question, choice);
  const Workload work = work_of(question, choice);
  Plan plan = plan_in_terms(request, terms);
  if (question.cost_basis) {
    plan.cost_basis = *question.cost_basis;
    for (PlanPart& part : plan.parts) part.cost_basis = *question.cost_basis;
  }
  const IterationPrediction predicted = predict_iteration(plan, work);
  WeighedMesh out{.choice = choice, .time = predicted.time};
  out.parts = parts_of(plan, work, predicted.time, predicted.stage);
  out.memory = fullest_memory(predict_in_terms(plan, terms));
  out.activations = terms.activations;
  out.slow_bytes = predicted.slow_bytes;
  out.fast_bytes = predicted.fast_bytes;
  out.tokens_per_second =
      static_cast<double>(question.global_batch) / out.seconds();
  out.share_of_peak =
      model_flops(question) /
      (out.seconds() * question.ranks * question.work.compute.flops_per_second);
  const int64_t cap = question.options.memory_cap_bytes;
  out.fits = cap == 0 || out.memory_bytes() <= cap;
  return out;
}

namespace {

std::vector<MeshChoice> all_choices(const MeshQuestion& question,
                                    const std::vector<Mesh>& meshes) {
  const MeshLimits& limits = question.limits;
  std::vector<MeshChoice> all;
  std::vector<bool> recompute{false, true};
  if (limits.recompute) recompute = {*limits.recompute};
  if (limits.no_recompute) recompute = {false};
  std::vector<Reach> reach{Reach::kDirect, Reach::kPerNode};
  if (limits.reach) reach = {*limits.reach};
  const bool experts = has_experts(*question.model);
  for (const Mesh& mesh : meshes)
    for (const BatchSplit& split :
         batch_splits(question.global_batch, question.work.compute.length,
                      mesh.homes(), limits))
      for (const bool again : recompute)
        for (const ZeroSizes& dense :
             sizes_in_space(mesh.homes(), limits, limits.zero))
          for (const ZeroSizes& own :
               experts ? sizes_in_space(mesh.expert_homes(), limits,
                                        limits.zero_experts)
                       : std::vector<ZeroSizes>{ZeroSizes{}})
            for (const Reach one : reach)
              all.push_back({mesh, dense, own, split.tokens,
                             split.num_micro_batches, again, one});
  return all;
}

}  // namespace

std::string MeshAnswer::summary() const {
  if (is_found())
    return cat(to_string(best().choice), ": ", kinds.front().reason);
  if (!nearest) return "no layout can be planned";
  return cat("no layout fits; the nearest is ", to_string(nearest->choice),
             ", which lacks ", human_bytes(nearest->lacks_bytes),
             nearest->cure.empty() ? "" : cat("; try ", nearest->cure));
}

MeshAnswer search_meshes(const MeshQuestion& question) {
  const MeshSpace space =
      meshes_in_space(*question.model, question.ranks,
                      question.options.ranks_per_node, question.limits);
  if (space.meshes.empty())
    throw UsageError(cat("mesh auto: no mesh of ", question.ranks,
                         " ranks is possible; ", space.refusal));
  const std::vector<MeshChoice> choices = all_choices(question, space.meshes);
  std::vector<std::optional<WeighedMesh>> weighed(choices.size());
  question.each(choices.size(), [&](size_t i) {
    try {
      weighed[i] = weigh_mesh(question, choices[i]);
    } catch (const UsageError&) {
      // This layout cannot be planned.
    }
  });
  MeshAnswer answer;
  answer.not_searched = not_in_mesh_space();
  answer.counts.in_space = std::ssize(choices);
  answer.counts.refused = space.refused;
  std::map<LayoutKind, WeighedMesh> best;
  for (const auto& one : weighed) {
    if (!one) continue;
    ++answer.counts.simulated;
    if (!one->fits) continue;
    const auto [found, is_new] = best.try_emplace(kind_of(one->choice), *one);
    if (!is_new && one->seconds() < found->second.seconds())
      found->second = *one;
  }
  answer.counts.planned = answer.counts.simulated;
  for (const auto& [kind, one] : best)
    answer.kinds.push_back({.kind = kind, .weighed = one});
  std::ranges::stable_sort(answer.kinds, {}, [](const RankedMesh& row) {
    return row.weighed.seconds();
  });
  return answer;
}

}  // namespace canzona
