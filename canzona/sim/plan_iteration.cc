#include "canzona/sim/plan_iteration.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/rank_threads.h"

namespace canzona {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(cat("simulated iteration: ", what));
}

void check_module(const ModuleWork& module, size_t number) {
  require(module.forward_seconds >= 0 && module.backward_seconds >= 0,
          cat("module ", number, " computes for a negative time"));
  require(module.publish_after >= 0 && module.publish_after <= 1,
          cat("module ", number, " leaves after ", module.publish_after,
              " of the step, expected 0 to 1"));
  for (const auto operation : kModuleOperations) {
    check_transfer((module.*operation).first);
    check_transfer((module.*operation).second);
  }
}

void check_uses(const IterationWork& work) {
  const auto num_modules = static_cast<int32_t>(work.modules.size());
  const std::vector<ModuleUse> uses = uses_of(work.calls);
  for (const ModuleUse& use : uses)
    require(use.module >= 0 && use.module < num_modules,
            cat("a use of module ", use.module, ", there are ", num_modules));
  require(!uses.empty(), "no module is used");
}

void check_rates(const IterationWork& work) {
  const Links& links = work.links;
  require(links.intra_bytes_per_second > 0 && links.inter_bytes_per_second > 0,
          "links need a bandwidth above 0");
  require(links.latency_seconds >= 0, "a latency is not negative");
  require(work.copy_bytes_per_second >= 0, "a copy rate is not negative");
  require(work.meetings.idle >= 0 && work.meetings.beside_compute >= 0,
          "a meeting takes no negative time");
  require(work.step_seconds >= 0, "a step's time is not negative");
  require(work.bubble_seconds >= 0, "a bubble's time is not negative");
}

}  // namespace

WireBytes bytes_of_uses(std::span<const ModuleWork> modules,
                        std::span<const ModuleUse> uses) {
  WireBytes sum;
  for (const ModuleUse& use : uses) {
    const ModuleWork& module = modules[index(use.module)];
    sum += module.gather.bytes();
    if (use.completes()) sum += module.scatter.bytes();
    if (use.is_last) sum += module.reduce.bytes() + module.publish.bytes();
  }
  return sum;
}

int32_t least_gather_slots(const IterationWork& work) {
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : uses_of(work.calls)) {
    if (!work.modules[index(use.module)].gather.empty()) ++held;
    most = std::max(most, held);
    if (!use.is_beside) held = 0;
  }
  return most;
}

int32_t least_scatter_slots(const IterationWork& work) {
  std::vector<bool> open(work.modules.size(), false);
  int32_t held = 0, most = 0;
  for (const ModuleUse& use : uses_of(work.calls)) {
    const size_t m = index(use.module);
    if (!use.is_backward || work.modules[m].scatter.empty()) continue;
    if (!open[m]) ++held;
    open[m] = use.is_beside;
    most = std::max(most, held);
    if (!use.is_beside) --held;
  }
  return most;
}

void check_work(const IterationWork& work) {
  for (size_t m = 0; m < work.modules.size(); ++m)
    check_module(work.modules[m], m);
  check_uses(work);
  check_rates(work);
  const int32_t gathers = least_gather_slots(work);
  require(work.gather_slots >= gathers,
          cat("gathers need ", gathers, " slots, got ", work.gather_slots));
  const int32_t scatters = least_scatter_slots(work);
  require(work.scatter_slots >= scatters,
          cat("scatters need ", scatters, " slots, got ", work.scatter_slots));
}

double IterationTime::hidden_fraction() const {
  if (!(busy_seconds > 0)) return 1;
  return std::max(0.0, 1 - waited() / busy_seconds);
}

namespace {

double edge_seconds(const IterationWork& work,
                    const std::vector<ModuleUse>& uses) {
  const auto alone = [&](const Legs& legs) {
    return seconds_alone(legs, work.links, work.copy_bytes_per_second);
  };
  const ModuleWork& first = work.modules[index(uses.front().module)];
  double sum = alone(first.publish) + alone(first.gather);
  const auto last =
      std::find_if(uses.rbegin(), uses.rend(),
                   [](const ModuleUse& use) { return use.completes(); });
  if (last == uses.rend()) return sum;
  const ModuleWork& module = work.modules[index(last->module)];
  return sum + alone(module.scatter) + alone(module.reduce);
}

}  // namespace

// An event may unblock several threads: after each event, all are polled in a
// fixed order until none of them moves.
IterationTime simulate_iteration(const IterationWork& work) {
  check_work(work);
  constexpr int kIterations = 3;
  IterationState state(work);
  SimulatedData data(state);
  SimulatedGather gather(state, data);
  SimulatedScatter scatter(state, data);
  SimulatedCompute compute(state, data, gather, scatter, kIterations);
  do {
    while (compute.move() || gather.move() || scatter.move() || data.move()) {
    }
  } while (!compute.is_ended() && state.events.run_next());
  CANZONA_CHECK(compute.is_ended(), "a simulated iteration stands still");
  state.record.edge_seconds = edge_seconds(work, state.uses);
  return std::move(state.record);
}

namespace {

// The time of one message of `bytes` each way between `rank` and each peer.
double exchange_seconds(const Plan& plan, const Workload& workload,
                        int32_t rank, const std::vector<int32_t>& peers,
                        int64_t bytes) {
  Transfer transfer;
  PeersByLevel by_level(workload.levels.size(), 0);
  for (const int32_t peer : peers) {
    const bool near =
        node_of(plan.options, peer) == node_of(plan.options, rank);
    ++(near ? transfer.messages_intra : transfer.messages_inter);
    if (!workload.levels.empty())
      ++by_level[level_of(workload.levels, rank, peer)];
  }
  WireBytes& all = transfer.bytes;
  all.sent_intra = all.received_intra = transfer.messages_intra * bytes;
  all.sent_inter = all.received_inter = transfer.messages_inter * bytes;
  const FarLinks far = far_links(workload.levels, by_level);
  transfer.far_scale = far.scale;
  transfer.added_latency_seconds = far.added_latency_seconds;
  return seconds_alone(transfer, plan.options.links, 0);
}

int64_t activation_row_bytes(const Workload& workload) {
  return workload.compute.tokens * workload.hidden *
         workload.bytes_per_activation;
}

std::set<int32_t> modules_of_experts(const Model& model) {
  std::set<int32_t> modules;
  for (const Tensor& tensor : model.tensors)
    if (tensor.expert >= 0) modules.insert(module_of(model, tensor));
  return modules;
}

}  // namespace

double token_exchange_seconds(const Plan& plan, const Workload& workload) {
  const Mesh& mesh = plan.mesh;
  if (mesh.ep == 1 || workload.hidden == 0) return 0;
  std::vector<int32_t> peers;
  for (int32_t e = 1; e < mesh.ep; ++e)
    peers.push_back(mesh.rank(0, mesh.home_of_expert(0, e), 0));
  const int64_t visits =
      std::max<int64_t>(1, workload.compute.experts_per_token);
  return exchange_seconds(plan, workload, 0, peers,
                          visits * activation_row_bytes(workload) / mesh.ep);
}

void add_token_exchanges(const Plan& plan, const Workload& workload,
                         std::vector<PassSeconds>& modules) {
  const double once = token_exchange_seconds(plan, workload);
  if (once == 0) return;
  for (const int32_t m : modules_of_experts(plan.model)) {
    modules[index(m)].forward += 2 * once;
    modules[index(m)].backward += (workload.compute.recompute ? 4 : 2) * once;
  }
}

double stage_send_seconds(const Plan& plan, const Workload& workload) {
  const Mesh& mesh = plan.mesh;
  if (mesh.pp == 1 || workload.hidden == 0) return 0;
  // Checks the borders of all stages, since the last ranks of a stage may be on
  // other nodes than the first.
  double slowest = 0;
  for (int32_t stage = 0; stage + 1 < mesh.pp; ++stage)
    for (const int32_t at : {0, mesh.ranks_per_stage() - 1}) {
      const int32_t rank = stage * mesh.ranks_per_stage() + at;
      slowest =
          std::max(slowest, exchange_seconds(plan, workload, rank,
                                             {rank + mesh.ranks_per_stage()},
                                             activation_row_bytes(workload)));
    }
  return slowest;
}

double exposed_sends(const Plan& plan, const Workload& workload) {
  return stage_send_seconds(plan, workload) * (plan.mesh.pp - 1) / plan.mesh.pp;
}

namespace {

// The number of ranks whose transfers are examined: all of them in small
// meshes. The cost of examining one grows with the mesh.
constexpr int32_t kManyHomes = 1024;
constexpr int32_t kFewestRanks = 4;

// Returns the length on the data-parallel rank with the longest sequences in
// this iteration. Ranks of cp share sequences.
int64_t longest_length(const Plan& plan, const Workload& workload) {
  const auto length = static_cast<double>(workload.compute.length);
  const double share =
      workload.spread.length / std::sqrt(static_cast<double>(std::max<int64_t>(
                                   1, workload.num_micro_batches)));
  return static_cast<int64_t>(length *
                              slowest_of(plan.mesh.dp * plan.mesh.ep, share));
}

std::vector<PassSeconds> pass_seconds(const Plan& plan,
                                      const Workload& workload) {
  std::vector<PassSeconds> modules = workload.measured;
  if (modules.empty()) {
    ComputeLoad load = workload.compute;
    load.tensor_parallel = plan.mesh.tp;
    load.length = longest_length(plan, workload);
    modules = compute_seconds(plan.model, load);
  }
  if (workload.num_micro_batches < 1)
    throw UsageError(cat("workload: at least one micro-batch, got ",
                         workload.num_micro_batches));
  if (std::ssize(modules) != num_modules(plan.model))
    throw UsageError(cat("workload: times of ", modules.size(),
                         " modules, the model has ", num_modules(plan.model)));
  const double slowest = slowest_of(plan.mesh.world(), workload.spread.compute);
  for (PassSeconds& passes : modules) {
    passes.forward *= slowest;
    passes.backward *= slowest;
  }
  add_tp_sums(plan, workload, modules);
  add_token_exchanges(plan, workload, modules);
  return modules;
}

// Returns the time of a stage, forward and backward.
double micro_batch_seconds(const Plan& plan,
                           const std::vector<PassSeconds>& passes,
                           int32_t stage) {
  double sum = 0;
  for (const TrainerCall& call : usual_calls(plan, stage, 1))
    if (call.kind == TrainerCall::Kind::kGradReady)
      sum += passes[index(call.module)].forward +
             passes[index(call.module)].backward;
  return sum;
}

// Returns the warm-up and cool-down of 1F1B: all other stages' share of one
// micro-batch, each as slow as the slowest, and what they send each other.
double bubble_seconds(const Plan& plan, const Workload& workload,
                      const std::vector<PassSeconds>& passes) {
  double slowest = 0;
  for (int32_t stage = 0; plan.mesh.pp > 1 && stage < plan.mesh.pp; ++stage)
    slowest = std::max(slowest, micro_batch_seconds(plan, passes, stage));
  return (plan.mesh.pp - 1) *
         (slowest + 2 * stage_send_seconds(plan, workload));
}

std::vector<int32_t> stages_to_look_at(const Plan& plan) {
  const std::set<int32_t> stages{0, plan.mesh.pp / 2, plan.mesh.pp - 1};
  return {stages.begin(), stages.end()};
}

// Compares bytes between nodes, then inside them.
bool sends_more(const WireBytes& a, const WireBytes& b) {
  return std::pair(a.sent_inter, a.sent_intra) >
         std::pair(b.sent_inter, b.sent_intra);
}

class PlanIteration {
 public:
  PlanIteration(const Plan& plan, const Workload& workload)
      : plan_(plan),
        workload_(workload),
        costs_(predict(plan)),
        passes_(pass_seconds(plan, workload)),
        bubble_seconds_(bubble_seconds(plan, workload, passes_)),
        shares_(applied_shares(plan)) {}

  const std::vector<RankCost>& costs() const { return costs_; }

  IterationWork of_stage(int32_t stage) const {
    IterationWork work;
    work.calls = usual_calls(plan_, stage, workload_.num_micro_batches);
    set_options(work, stage);
    const std::vector<int32_t> ranks = sample(stage);
    work.modules.resize(passes_.size());
    for (const int32_t rank : ranks) {
      const std::vector<ModuleWork> other = transfers_of(rank, RunOf::kLongest);
      for (size_t m = 0; m < other.size(); ++m)
        for (const auto operation : kModuleOperations)
          work.modules[m].*operation =
              slower(work.modules[m].*operation, other[m].*operation);
    }
    for (size_t m = 0; m < work.modules.size(); ++m) {
      work.modules[m].forward_seconds = passes_[m].forward;
      work.modules[m].backward_seconds = passes_[m].backward;
      work.modules[m].publish_after = shares_[m];
    }
    add_stage_sends(work, stage);
    work.bubble_seconds = bubble_seconds_;
    work.step_bytes = step_bytes(ranks.front());
    const auto per_stage = static_cast<size_t>(plan_.mesh.ranks_per_stage());
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (size_t r = first; r < first + per_stage; ++r)
      work.step_seconds = std::max(work.step_seconds, step_seconds(costs_[r]));
    return work;
  }

  // Returns the time on the slowest card.
  double step_seconds(const RankCost& cost) const {
    const double slowest =
        slowest_of(plan_.mesh.world(), workload_.spread.compute);
    return cost.step_seconds_mean + (slowest - 1) * cost.transform_seconds_mean;
  }

  // Returns the bytes of the rank that sends most between nodes, among those
  // examined.
  WireBytes most_bytes(int32_t stage, std::span<const ModuleUse> uses) const {
    WireBytes most;
    for (const int32_t rank : sample(stage)) {
      const WireBytes bytes =
          step_bytes(rank) +
          bytes_of_uses(transfers_of(rank, RunOf::kThisRank), uses);
      if (sends_more(bytes, most)) most = bytes;
    }
    return most;
  }

 private:
  // A stage waits for activations before its first module's forward, and for
  // gradients before its last one's backward.
  void add_stage_sends(IterationWork& work, int32_t stage) const {
    const double exposed = exposed_sends(plan_, workload_);
    if (exposed == 0) return;
    const std::vector<ModuleUse> uses = uses_of(work.calls);
    if (stage > 0)
      work.modules[index(uses.front().module)].forward_seconds += exposed;
    const auto last = std::ranges::find_if(
        uses, [](const ModuleUse& use) { return use.completes(); });
    if (stage + 1 < plan_.mesh.pp && last != uses.end())
      work.modules[index(last->module)].backward_seconds += exposed;
  }

  // Ranks evenly spread over the stage, including the first and the last.
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

  // Dense tensors and experts have the same number of slots if both have any.
  PoolSizes pools_of(int32_t stage) const {
    PoolSizes pools = pool_sizes(plan_.parts.front(), stage);
    for (const PlanPart& part : kinds_of_parts(plan_)) {
      const PoolSizes own = pool_sizes(part, stage);
      pools.gather_slots = std::max(pools.gather_slots, own.gather_slots);
      pools.scatter_slots = std::max(pools.scatter_slots, own.scatter_slots);
    }
    return pools;
  }

  void set_options(IterationWork& work, int32_t stage) const {
    const PoolSizes pools = pools_of(stage);
    // A tied embedding with a slot of its own is held in addition to the
    // others.
    const int32_t held = pools.large_slot > 0 ? slots_at_once(plan_) - 1 : 0;
    work.gather_slots = std::max(1, pools.gather_slots) + held;
    work.scatter_slots = std::max(1, pools.scatter_slots) + held;
    work.overlap = workload_.overlap;
    work.links = plan_.options.links;
    work.copy_bytes_per_second = workload_.copy_bytes_per_second;
    work.meetings = workload_.meetings;
  }

  std::vector<ModuleWork> transfers_of(int32_t rank, RunOf run) const {
    return rank_transfers(plan_, workload_, rank, run);
  }

  // Returns the bytes of the exchange of matrices and of broadcasts.
  WireBytes step_bytes(int32_t rank) const {
    WireBytes sum;
    for (Collective c :
         {Collective::kGather, Collective::kScatter, Collective::kBroadcast})
      sum += costs_[index(rank)].wire[static_cast<size_t>(c)];
    return sum;
  }

  const Plan& plan_;
  const Workload& workload_;
  std::vector<RankCost> costs_;  // by rank in the world
  std::vector<PassSeconds> passes_;
  double bubble_seconds_;
  std::vector<double> shares_;  // fraction of the step after which a module is
                                // applied
};

}  // namespace

IterationWork plan_iteration(const Plan& plan, const Workload& workload,
                             int32_t stage) {
  CANZONA_CHECK(stage >= 0 && stage < plan.mesh.pp, "stage ", stage);
  return PlanIteration(plan, workload).of_stage(stage);
}

namespace {

std::vector<IterationPrediction> stages_of(const Plan& plan,
                                           const PlanIteration& iteration) {
  const int32_t per_stage = plan.mesh.ranks_per_stage();
  std::vector<IterationPrediction> out;
  for (int32_t stage : stages_to_look_at(plan)) {
    IterationPrediction& one = out.emplace_back();
    const IterationWork work = iteration.of_stage(stage);
    one.time = simulate_iteration(work);
    one.time.bytes = iteration.most_bytes(stage, uses_of(work.calls));
    one.stage = stage;
    one.slow_bytes = one.time.bytes.sent_inter;
    one.fast_bytes = one.time.bytes.sent_intra;
    for (int32_t r = stage * per_stage; r < (stage + 1) * per_stage; ++r)
      one.memory_bytes = std::max(
          one.memory_bytes, iteration.costs()[index(r)].memory.total().value());
  }
  return out;
}

}  // namespace

std::vector<IterationPrediction> predict_stages(const Plan& plan,
                                                const Workload& workload) {
  return stages_of(plan, PlanIteration(plan, workload));
}

IterationPrediction predict_iteration(const Plan& plan,
                                      const Workload& workload) {
  const PlanIteration iteration(plan, workload);
  const std::vector<IterationPrediction> stages = stages_of(plan, iteration);
  IterationPrediction out = *std::ranges::max_element(
      stages, {}, [](const auto& one) { return one.time.seconds; });
  out.time.bytes = {};
  for (const RankCost& cost : iteration.costs())
    out.memory_bytes = std::max(out.memory_bytes, cost.memory.total().value());
  for (const IterationPrediction& one : stages)
    if (sends_more(one.time.bytes, out.time.bytes))
      out.time.bytes = one.time.bytes;
  out.slow_bytes = out.time.bytes.sent_inter;
  out.fast_bytes = out.time.bytes.sent_intra;
  return out;
}

namespace {

// Returns the flops of forward and backward of one micro-batch on one
// data-parallel rank.
double flops_of_micro_batch(const Plan& plan, const Workload& workload) {
  ComputeLoad load = workload.compute;
  load.flops_per_second = load.attention_flops_per_second = 1;
  load.tensor_parallel = 1;
  load.recompute = false;
  double flops = 0;
  for (const PassSeconds& passes : compute_seconds(plan.model, load))
    flops += passes.forward + passes.backward;
  return flops;
}

}  // namespace

int64_t ClusterPrediction::memory_bytes() const {
  int64_t most = 0;
  for (const IterationPrediction& kind : kinds)
    most = std::max(most, kind.memory_bytes);
  return most;
}

ClusterPrediction predict_cluster(const Plan& plan, const Workload& workload) {
  ClusterPrediction out;
  out.kinds = predict_stages(plan, workload);
  for (size_t k = 1; k < out.kinds.size(); ++k)
    if (out.kinds[k].time.seconds > out.kinds[out.slowest].time.seconds)
      out.slowest = k;
  const Mesh& mesh = plan.mesh;
  const auto batches = static_cast<double>(workload.num_micro_batches);
  const double on_ranks = batches * mesh.homes();
  out.tokens = on_ranks * static_cast<double>(workload.compute.tokens);
  out.model_flops = on_ranks * flops_of_micro_batch(plan, workload);
  out.ranks = mesh.world();
  out.card_flops = workload.compute.flops_per_second;
  out.slowest_card = slowest_of(mesh.world(), workload.spread.compute);
  out.longest_batch = slowest_of(mesh.dp * mesh.ep,
                                 workload.spread.length / std::sqrt(batches));
  return out;
}

Plan at_rate(Plan plan, double flops_per_second) {
  plan.cost_basis.seconds_per_tick = 1 / flops_per_second;
  for (PlanPart& part : plan.parts)
    part.cost_basis.seconds_per_tick = 1 / flops_per_second;
  summarize(plan);
  return plan;
}

}  // namespace canzona
