#include "canzona/sim/plan_iteration.h"

#include <algorithm>
#include <set>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/sim/rank_transfers.h"
#include "canzona/sim/tp_seconds.h"

namespace canzona {
namespace {

// Ranks whose transfers are looked at: all of small meshes. What it costs to
// look at one grows with the mesh.
constexpr int32_t kManyHomes = 1024;
constexpr int32_t kFewestRanks = 4;

std::vector<PassSeconds> pass_seconds(const Plan& plan,
                                      const Workload& workload) {
  std::vector<PassSeconds> modules = workload.measured;
  if (modules.empty()) {
    ComputeLoad load = workload.compute;
    load.tensor_parallel = plan.mesh.tp;
    modules = compute_seconds(plan.model, load);
  }
  if (std::ssize(modules) != num_modules(plan.model))
    throw UsageError(cat("workload: times of ", modules.size(),
                         " modules, the model has ", num_modules(plan.model)));
  add_tp_sums(plan, workload, modules);
  return modules;
}

std::vector<int32_t> modules_of_stage(const Plan& plan, int32_t stage) {
  std::set<int32_t> modules;
  for (const Tensor& tensor : plan.model.tensors)
    if (stage_of(plan.mesh, plan.model, tensor) == stage)
      modules.insert(module_of(plan.model, tensor));
  return {modules.begin(), modules.end()};
}

double micro_batch_seconds(const std::vector<PassSeconds>& passes,
                           const std::vector<int32_t>& modules) {
  double sum = 0;
  for (int32_t m : modules) {
    const PassSeconds& pass = passes[static_cast<size_t>(m)];
    sum += pass.forward + pass.backward;
  }
  return sum;
}

std::vector<int32_t> stages_to_look_at(const Plan& plan) {
  const std::set<int32_t> stages{0, plan.mesh.pp / 2, plan.mesh.pp - 1};
  return {stages.begin(), stages.end()};
}

class PlanIteration {
 public:
  PlanIteration(const Plan& plan, const Workload& workload)
      : plan_(plan),
        workload_(workload),
        costs_(predict(plan)),
        passes_(pass_seconds(plan, workload)) {}

  const std::vector<RankCost>& costs() const { return costs_; }

  // Of one rank, and what its stage computes.
  IterationWork of_rank(int32_t rank, RunOf run) const {
    const int32_t stage = coordinates_of(plan_.mesh, rank).stage;
    const RankCost& cost = costs_[static_cast<size_t>(rank)];
    IterationWork work;
    work.modules = rank_transfers(plan_, workload_, rank, run);
    for (size_t m = 0; m < work.modules.size(); ++m) {
      work.modules[m].forward_seconds = passes_[m].forward;
      work.modules[m].backward_seconds = passes_[m].backward;
    }
    const std::vector<int32_t> modules = modules_of_stage(plan_, stage);
    const bool tied = plan_.mesh.pp == 1 && is_tied(plan_.model);
    work.uses = uses_in_order(modules, tied);
    work.step_seconds = cost.step_seconds_mean;
    for (Collective c :
         {Collective::kGather, Collective::kScatter, Collective::kBroadcast})
      work.step_bytes = work.step_bytes + cost.wire[static_cast<size_t>(c)];
    work.bubble_seconds = bubble_seconds();
    set_options(work, stage);
    return work;
  }

  IterationWork of_stage(int32_t stage) const {
    IterationWork work;
    for (int32_t rank : sample(stage)) {
      const IterationWork other = of_rank(rank, RunOf::kLongest);
      if (work.modules.empty()) work = other;
      join(work, other);
    }
    const auto per_stage = static_cast<size_t>(plan_.mesh.ranks_per_stage());
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (size_t r = first; r < first + per_stage; ++r)
      work.step_seconds =
          std::max(work.step_seconds, costs_[r].step_seconds_mean);
    return work;
  }

  // Evenly spread over the stage, first and last among them.
  std::vector<int32_t> sample(int32_t stage) const {
    const int32_t all = plan_.mesh.ranks_per_stage();
    const int32_t count = std::clamp(kManyHomes / plan_.mesh.homes(),
                                     std::min(all, kFewestRanks), all);
    std::vector<int32_t> ranks;
    for (int64_t i = 0; i < count; ++i)
      ranks.push_back(
          stage * all +
          static_cast<int32_t>(count == 1 ? 0 : i * (all - 1) / (count - 1)));
    return ranks;
  }

 private:
  // Warm-up and cool-down of 1F1B: all other stages' share of one micro-batch,
  // as slow as the slowest.
  double bubble_seconds() const {
    double slowest = 0;
    for (int32_t stage = 0; stage < plan_.mesh.pp; ++stage)
      slowest = std::max(slowest, micro_batch_seconds(
                                      passes_, modules_of_stage(plan_, stage)));
    return (plan_.mesh.pp - 1) * slowest;
  }

  // Slots of dense tensors and of experts are as many, where both have some.
  PoolSizes pools_of(int32_t stage) const {
    PoolSizes pools = pool_sizes(plan_.parts.front(), stage);
    const PoolSizes last = pool_sizes(plan_.parts.back(), stage);
    pools.gather_slots = std::max(pools.gather_slots, last.gather_slots);
    pools.scatter_slots = std::max(pools.scatter_slots, last.scatter_slots);
    return pools;
  }

  void set_options(IterationWork& work, int32_t stage) const {
    const PoolSizes pools = pools_of(stage);
    // A tied embedding that has a slot of its own is held beside the others.
    const bool pair = is_tied(plan_.model) && plan_.mesh.pp == 1;
    const int32_t held = pools.large_slot > 0 && pair ? 1 : 0;
    work.gather_slots = std::max(1, pools.gather_slots) + held;
    work.scatter_slots = std::max(1, pools.scatter_slots) + held;
    work.num_micro_batches = workload_.num_micro_batches;
    work.overlap = workload_.overlap;
    work.links = plan_.options.links;
    work.copy_bytes_per_second = workload_.copy_bytes_per_second;
    work.slowdown = workload_.slowdown;
    work.meetings = workload_.meetings;
  }

  static void join(IterationWork& work, const IterationWork& other) {
    for (size_t m = 0; m < work.modules.size(); ++m) {
      ModuleWork& a = work.modules[m];
      const ModuleWork& b = other.modules[m];
      a.gather = slower(a.gather, b.gather);
      a.scatter = slower(a.scatter, b.scatter);
      a.gather_inside = slower(a.gather_inside, b.gather_inside);
      a.scatter_across = slower(a.scatter_across, b.scatter_across);
      a.reduce = slower(a.reduce, b.reduce);
      a.publish = slower(a.publish, b.publish);
      a.reduce_across = slower(a.reduce_across, b.reduce_across);
      a.publish_inside = slower(a.publish_inside, b.publish_inside);
    }
  }

  const Plan& plan_;
  const Workload& workload_;
  std::vector<RankCost> costs_;  // by rank of the world
  std::vector<PassSeconds> passes_;
};

}  // namespace

IterationWork plan_iteration(const Plan& plan, const Workload& workload,
                             int32_t stage) {
  CANZONA_CHECK(stage >= 0 && stage < plan.mesh.pp, "stage ", stage);
  return PlanIteration(plan, workload).of_stage(stage);
}

namespace {

// Of the rank that sends most between nodes.
WireBytes most_bytes(const PlanIteration& iteration,
                     const std::vector<int32_t>& ranks) {
  WireBytes most;
  for (int32_t rank : ranks) {
    const WireBytes bytes =
        iteration_bytes(iteration.of_rank(rank, RunOf::kThisRank));
    if (std::pair(bytes.sent_inter, bytes.sent_intra) >
        std::pair(most.sent_inter, most.sent_intra))
      most = bytes;
  }
  return most;
}

}  // namespace

IterationPrediction predict_iteration(const Plan& plan,
                                      const Workload& workload) {
  const PlanIteration iteration(plan, workload);
  IterationPrediction out;
  for (const RankCost& cost : iteration.costs())
    out.memory_bytes = std::max(out.memory_bytes, cost.memory.total().value());
  std::vector<int32_t> ranks;
  for (int32_t stage : stages_to_look_at(plan)) {
    const std::vector<int32_t> sample = iteration.sample(stage);
    ranks.insert(ranks.end(), sample.begin(), sample.end());
    IterationTime time = simulate_iteration(iteration.of_stage(stage));
    if (time.seconds <= out.time.seconds) continue;
    out.time = std::move(time);
    out.stage = stage;
  }
  out.time.bytes = most_bytes(iteration, ranks);
  out.slow_bytes = out.time.bytes.sent_inter;
  out.fast_bytes = out.time.bytes.sent_intra;
  return out;
}

}  // namespace canzona
