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

namespace canzona::sim {
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

}  // namespace

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

namespace {

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

}  // namespace

double bubble_seconds(const Plan& plan, const Workload& workload,
                      const std::vector<PassSeconds>& passes) {
  double slowest = 0;
  for (int32_t stage = 0; plan.mesh.pp > 1 && stage < plan.mesh.pp; ++stage)
    slowest = std::max(slowest, micro_batch_seconds(plan, passes, stage));
  return (plan.mesh.pp - 1) *
         (slowest + 2 * stage_send_seconds(plan, workload));
}

std::vector<int32_t> stages_to_look_at(const Mesh& mesh) {
  const std::set<int32_t> stages{0, mesh.pp / 2, mesh.pp - 1};
  return {stages.begin(), stages.end()};
}

namespace {

// Compares bytes between nodes, then inside them.
bool sends_more(const WireBytes& a, const WireBytes& b) {
  return std::pair(a.sent_inter, a.sent_intra) >
         std::pair(b.sent_inter, b.sent_intra);
}

// Ranks evenly spread over the stage, including the first and the last.
std::vector<int32_t> sample(const Mesh& mesh, int32_t stage) {
  const int32_t all = mesh.ranks_per_stage();
  const int32_t count =
      std::clamp(kManyHomes / mesh.homes(), std::min(all, kFewestRanks), all);
  std::vector<int32_t> ranks;
  for (int64_t i = 0; i < count; ++i)
    ranks.push_back(
        stage * all +
        static_cast<int32_t>(count == 1 ? 0 : i * (all - 1) / (count - 1)));
  return ranks;
}

class PlanIteration {
 public:
  PlanIteration(const Plan& plan, const Workload& workload,
                const std::vector<RankCost>& costs)
      : plan_(plan),
        workload_(workload),
        costs_(costs),
        shares_(applied_shares(plan)) {}

  StageIteration of_stage(int32_t stage) const {
    StageIteration out{.stage = stage};
    IterationWork& work = out.work;
    work.calls = usual_calls(plan_, stage, 1);
    set_options(work, stage);
    work.modules.resize(shares_.size());
    const std::vector<ModuleUse> uses = uses_of(work.calls);
    for (const int32_t rank : sample(plan_.mesh, stage)) {
      const RankTransfers other = rank_transfers(plan_, workload_, rank);
      for (size_t m = 0; m < work.modules.size(); ++m)
        for (const auto operation : kModuleOperations)
          work.modules[m].*operation =
              slower(work.modules[m].*operation, other.longest[m].*operation);
      add_bytes(rank, other.own, uses, out);
    }
    for (size_t m = 0; m < work.modules.size(); ++m)
      work.modules[m].publish_after = shares_[m];
    work.step_bytes = step_bytes(stage * plan_.mesh.ranks_per_stage());
    const auto per_stage = static_cast<size_t>(plan_.mesh.ranks_per_stage());
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (size_t r = first; r < first + per_stage; ++r) {
      work.step_seconds = std::max(work.step_seconds, step_seconds(costs_[r]));
      out.memory_bytes =
          std::max(out.memory_bytes, costs_[r].memory.total().value());
    }
    return out;
  }

 private:
  // Returns the time on the slowest card.
  double step_seconds(const RankCost& cost) const {
    const double slowest =
        slowest_of(plan_.mesh.world(), workload_.spread.compute);
    return cost.step_seconds_mean + (slowest - 1) * cost.transform_seconds_mean;
  }

  // Adds what a rank moves in every micro-batch, and in a step.
  void add_bytes(int32_t rank, const std::vector<ModuleWork>& own,
                 std::vector<ModuleUse> uses, StageIteration& out) const {
    StageIteration::RankBytes& bytes = out.ranks.emplace_back();
    const WireBytes all = bytes_of_uses(own, uses);
    for (ModuleUse& use : uses) use.is_last = false;
    bytes.of_micro_batch = bytes_of_uses(own, uses);
    bytes.of_step = step_bytes(rank) + all;
    bytes.of_step.add(bytes.of_micro_batch, -1);
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
  const std::vector<RankCost>& costs_;  // by rank in the world
  std::vector<double> shares_;  // fraction of the step after which a module is
                                // applied
};

// A stage waits for activations before its first module's forward, and for
// gradients before its last one's backward.
void add_stage_sends(const MicroBatch& batch, int32_t stage,
                     IterationWork& work) {
  if (batch.exposed_send == 0) return;
  const std::vector<ModuleUse> uses = uses_of(work.calls);
  if (stage > 0)
    work.modules[index(uses.front().module)].forward_seconds +=
        batch.exposed_send;
  const auto last = std::ranges::find_if(
      uses, [](const ModuleUse& use) { return use.completes(); });
  if (stage + 1 < batch.num_stages && last != uses.end())
    work.modules[index(last->module)].backward_seconds += batch.exposed_send;
}

}  // namespace

MicroBatch micro_batch_of(const Plan& plan, const Workload& workload) {
  MicroBatch batch{.passes = pass_seconds(plan, workload),
                   .exposed_send = exposed_sends(plan, workload),
                   .num_stages = plan.mesh.pp};
  batch.bubble_seconds = bubble_seconds(plan, workload, batch.passes);
  return batch;
}

IterationWork StageIteration::with(const MicroBatch& batch,
                                   int64_t num_micro_batches) const {
  IterationWork out = work;
  for (size_t m = 0; m < batch.passes.size(); ++m) {
    out.modules[m].forward_seconds = batch.passes[m].forward;
    out.modules[m].backward_seconds = batch.passes[m].backward;
  }
  out.bubble_seconds = batch.bubble_seconds;
  add_stage_sends(batch, stage, out);
  const TrainerCall step = out.calls.back();
  out.calls.pop_back();
  const std::vector<TrainerCall> once = out.calls;
  for (int64_t i = 1; i < num_micro_batches; ++i)
    out.calls.insert(out.calls.end(), once.begin(), once.end());
  out.calls.push_back(step);
  return out;
}

namespace {

// Extrapolates a part of iterations that differ by `step` micro-batches; waits
// that end within the shorter one do not come again.
double extrapolated(double fewer, double more, double steps) {
  return more + steps * std::max(0.0, more - fewer);
}

// Requires the iterations of half of kMostSimulated micro-batches and of all
// of them. Pools limit how far the threads of a rank drift apart, so that
// micro-batches in the middle soon repeat each other.
IterationTime with_more(const IterationTime& fewer, const IterationTime& more,
                        int64_t num_micro_batches) {
  const double steps = static_cast<double>(num_micro_batches - kMostSimulated) /
                       static_cast<double>(kMostSimulated / 2);
  IterationTime out = more;
  for (const auto part :
       {&IterationTime::compute_seconds, &IterationTime::waited_parameters,
        &IterationTime::waited_gradients, &IterationTime::waited_step,
        &IterationTime::busy_intra_seconds, &IterationTime::busy_inter_seconds,
        &IterationTime::busy_seconds})
    out.*part = extrapolated(fewer.*part, more.*part, steps);
  out.seconds = out.compute_seconds + out.waited() + out.bubble_seconds +
                out.step_seconds;
  return out;
}

}  // namespace

IterationPrediction StageIteration::predict(const MicroBatch& batch,
                                            int64_t num_micro_batches) const {
  IterationPrediction out{
      .time = {}, .stage = stage, .memory_bytes = memory_bytes};
  out.time = simulate_iteration(
      with(batch, std::min(num_micro_batches, kMostSimulated)));
  if (num_micro_batches > kMostSimulated)
    out.time = with_more(simulate_iteration(with(batch, kMostSimulated / 2)),
                         out.time, num_micro_batches);
  WireBytes& most = out.time.bytes = {};
  for (const RankBytes& rank : ranks) {
    WireBytes bytes = rank.of_step;
    bytes.add(rank.of_micro_batch, num_micro_batches);
    if (sends_more(bytes, most)) most = bytes;
  }
  out.slow_bytes = most.sent_inter;
  out.fast_bytes = most.sent_intra;
  return out;
}

std::vector<StageIteration> stage_iterations(
    const Plan& plan, const Workload& workload,
    const std::vector<RankCost>& costs) {
  const PlanIteration iteration(plan, workload, costs);
  std::vector<StageIteration> out;
  for (const int32_t stage : stages_to_look_at(plan.mesh))
    out.push_back(iteration.of_stage(stage));
  return out;
}

IterationWork plan_iteration(const Plan& plan, const Workload& workload,
                             int32_t stage) {
  CANZONA_CHECK(stage >= 0 && stage < plan.mesh.pp, "stage ", stage);
  return PlanIteration(plan, workload, predict(plan))
      .of_stage(stage)
      .with(micro_batch_of(plan, workload), workload.num_micro_batches);
}

IterationPrediction slowest_of_stages(
    const std::vector<IterationPrediction>& stages) {
  IterationPrediction out = *std::ranges::max_element(
      stages, {}, [](const auto& one) { return one.time.seconds; });
  out.time.bytes = {};
  for (const IterationPrediction& one : stages) {
    out.memory_bytes = std::max(out.memory_bytes, one.memory_bytes);
    if (sends_more(one.time.bytes, out.time.bytes))
      out.time.bytes = one.time.bytes;
  }
  out.slow_bytes = out.time.bytes.sent_inter;
  out.fast_bytes = out.time.bytes.sent_intra;
  return out;
}

std::vector<IterationPrediction> predict_stages(const Plan& plan,
                                                const Workload& workload) {
  const MicroBatch batch = micro_batch_of(plan, workload);
  std::vector<IterationPrediction> out;
  for (const StageIteration& stage :
       stage_iterations(plan, workload, predict(plan)))
    out.push_back(stage.predict(batch, workload.num_micro_batches));
  return out;
}

IterationPrediction predict_iteration(const Plan& plan,
                                      const Workload& workload) {
  const std::vector<RankCost> costs = predict(plan);
  const MicroBatch batch = micro_batch_of(plan, workload);
  std::vector<IterationPrediction> stages;
  for (const StageIteration& stage : stage_iterations(plan, workload, costs))
    stages.push_back(stage.predict(batch, workload.num_micro_batches));
  IterationPrediction out = slowest_of_stages(stages);
  for (const RankCost& cost : costs)
    out.memory_bytes = std::max(out.memory_bytes, cost.memory.total().value());
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

}  // namespace canzona::sim
