#include "canzona/plan/predict/predict.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {
using namespace plan;

std::string_view to_string(Collective collective) {
  constexpr std::array<std::string_view, kNumCollectives> kNames{
      "reduce-scatter", "all-reduce", "gather",    "scatter",
      "all-gather",     "broadcast",  "team sums", "team factors"};
  return kNames[static_cast<size_t>(collective)];
}

int64_t RankCost::bytes_sent() const {
  int64_t sum = 0;
  for (const WireBytes& w : wire) sum += w.sent();
  return sum;
}

RankMemory& RankMemory::operator+=(const RankMemory& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  master += other.master;
  states += other.states;
  buffers += other.buffers;
  pools += other.pools;
  staging += other.staging;
  return *this;
}

RankCost& RankCost::operator+=(const RankCost& other) {
  elements += other.elements;
  computed += other.computed;
  every_step += other.every_step;
  refresh.resize(std::max(refresh.size(), other.refresh.size()));
  for (size_t p = 0; p < other.refresh.size(); ++p)
    refresh[p] += other.refresh[p];
  num_matrices += other.num_matrices;
  memory += other.memory;
  for (size_t c = 0; c < wire.size(); ++c) wire[c] += other.wire[c];
  transform_seconds_mean += other.transform_seconds_mean;
  transform_seconds_worst += other.transform_seconds_worst;
  element_wise_bytes += other.element_wise_bytes;
  element_wise_seconds += other.element_wise_seconds;
  step_seconds += other.step_seconds;
  step_seconds_mean += other.step_seconds_mean;
  step_seconds_worst += other.step_seconds_worst;
  return *this;
}

}  // namespace canzona

namespace canzona::plan {

int64_t matrix_elements_at(const Bucket& bucket, int32_t h) {
  if (bucket.cuts.empty()) return 0;
  const auto i = static_cast<size_t>(h);
  return bucket.cuts[i + 1] - bucket.cuts[i];
}

int64_t longest_run(const Bucket& bucket) {
  int64_t longest = 0;
  for (size_t h = 0; h + 1 < bucket.cuts.size(); ++h) {
    longest = std::max(longest, bucket.cuts[h + 1] - bucket.cuts[h]);
  }
  return longest;
}

int64_t bytes_per_parameter(const PlanPart& part) {
  return size_of(part.options.parameters);
}

namespace {

int64_t shard_sum(const PlanPart& part, const Bucket& bucket, size_t first,
                  size_t last) {
  int64_t sum = 0;
  for (size_t i = first; i < last; ++i) {
    const Tensor& tensor =
        part.model.tensors[static_cast<size_t>(bucket.tensors[i])];
    if (!tensor.frozen) sum += shard_elements(part.grid, tensor);
  }
  return sum;
}

}  // namespace

int64_t matrix_elements(const PlanPart& part, const Bucket& bucket) {
  return shard_sum(part, bucket, 0,
                   static_cast<size_t>(bucket.num_matrix_tensors));
}

int64_t adamw_elements(const PlanPart& part, const Bucket& bucket) {
  return shard_sum(part, bucket, static_cast<size_t>(bucket.num_matrix_tensors),
                   bucket.tensors.size());
}

void add_loads(const PlanPart& part, const std::vector<int32_t>& phase,
               int32_t phases, std::vector<RankCost>& ranks) {
  for (RankCost& rank : ranks) {
    rank.refresh.assign(static_cast<size_t>(phases), Ticks());
  }
  TeamTable teams(part);
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    std::vector<MatrixShare> shares;
    if (teams.is_shared(m)) shares = teams.shares(m);
    size_t next = 0;
    each_computing_rank(part, m, [&](int32_t r) {
      const bool shared = next < shares.size();
      const MatrixCost& cost = shared ? shares[next].cost : part.costs[m];
      RankCost& rank = ranks[static_cast<size_t>(r)];
      rank.every_step += cost.every_step;
      rank.refresh[static_cast<size_t>(phase[m])] += cost.refresh;
      rank.computed += shared ? shares[next].elements()
                              : part.matrices[m].rows * part.matrices[m].cols;
      ++rank.num_matrices;
      ++next;
    });
  }
}

namespace {

// Copies updates that every home repeats, which were counted once per ep
// coordinate, to the other homes.
void share_repeated(const PlanPart& part, std::vector<RankCost>& ranks) {
  if (part.traffic != Traffic::kAllReduce) return;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int32_t counted = counted_rank(part.grid, static_cast<int32_t>(r));
    if (static_cast<size_t>(counted) != r) {
      ranks[r] = ranks[static_cast<size_t>(counted)];
    }
  }
}

}  // namespace

namespace {

Nodes nodes_of(const PlanPart& part, int32_t replica) {
  Nodes nodes;
  for (int32_t r = 0; r < part.grid.world(); ++r)
    nodes.push_back(part.node_of(rank_in_part(part, r, replica)));
  return nodes;
}

// Renumbers nodes, so that only which ranks share a node matters.
Nodes pattern_of(Nodes nodes) {
  int32_t number = -1, last = -1;
  for (int32_t& node : nodes) {
    if (node != last) ++number;
    last = node;
    node = number;
  }
  return nodes;
}

enum class Times { kNone, kOfStep };

std::vector<RankCost> predict_replica(const PlanPart& part, const Nodes& nodes,
                                      Times times) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  std::vector<RankCost> ranks(nodes.size());
  add_loads(part, part.phase, part.phases, ranks);
  add_matrix_memory(part, *rule, ranks);
  share_repeated(part, ranks);
  add_exchange_bytes(part, *rule, nodes, ranks);
  if (times == Times::kOfStep) add_step_times(part, *rule, nodes, ranks);
  add_bucket_memory(part, ranks);
  add_pools(part, ranks);
  add_element_wise(part, *rule, ranks);
  return ranks;
}

// Returns costs by rank of the world, without buckets' bytes. Replicas with the
// same distribution over nodes are predicted once.
std::vector<RankCost> predict_replicas(const PlanPart& part, Times times) {
  if (part.num_replicas() == 1)
    return predict_replica(part, pattern_of(nodes_of(part, 0)), times);
  std::map<Nodes, std::vector<RankCost>> known;
  std::vector<RankCost> world(static_cast<size_t>(part.mesh.world()));
  for (int32_t replica = 0; replica < part.num_replicas(); ++replica) {
    const Nodes pattern = pattern_of(nodes_of(part, replica));
    auto found = known.find(pattern);
    if (found == known.end())
      found =
          known.emplace(pattern, predict_replica(part, pattern, times)).first;
    for (int32_t r = 0; r < part.grid.world(); ++r)
      world[static_cast<size_t>(rank_in_part(part, r, replica))] =
          found->second[static_cast<size_t>(r)];
  }
  return world;
}

std::vector<RankCost> predict_world(const PlanPart& part, Times times) {
  std::vector<RankCost> world = predict_replicas(part, times);
  add_bucket_bytes(part, world);
  if (times == Times::kOfStep) add_unhidden_times(part, world);
  for (size_t r = 0; r < world.size(); ++r)
    world[r].memory.staging =
        Bytes(sum_staging_of(part, static_cast<int32_t>(r)));
  return world;
}

}  // namespace

}  // namespace canzona::plan

namespace canzona {

std::vector<RankCost> predict(const PlanPart& part) {
  return predict_world(part, Times::kOfStep);
}

std::vector<RankCost> predict_without_times(const PlanPart& part) {
  return predict_world(part, Times::kNone);
}

std::vector<RankCost> sum_of_parts(
    const Plan& plan, std::vector<std::vector<RankCost>> of_parts) {
  // The first part has the ranks of the whole plan.
  std::vector<RankCost> ranks = std::move(of_parts.front());
  for (size_t i = 1; i < of_parts.size(); ++i)
    for (int32_t r = 0; r < plan.parts[i].mesh.world(); ++r)
      ranks[index(plan.parts[i].rank_in_whole(r))] += of_parts[i][index(r)];
  return ranks;
}

std::vector<RankCost> predict(const Plan& plan) {
  std::vector<std::vector<RankCost>> of_parts;
  for (const PlanPart& part : plan.parts) of_parts.push_back(predict(part));
  return sum_of_parts(plan, std::move(of_parts));
}

namespace {

// The largest load of an ordinary step, and of the refresh step of each phase.
struct StepMaxima {
  int64_t ordinary = 0;
  std::vector<int64_t> refresh;
};

// A step takes at least the longest path of its teams (longest_team_paths), if
// these are given.
StepMaxima step_maxima(const std::vector<RankCost>& ranks, size_t phases,
                       std::span<const int64_t> paths = {}) {
  StepMaxima maxima;
  maxima.refresh.assign(phases, 0);
  if (!paths.empty()) {
    maxima.ordinary = paths[0];
    maxima.refresh.assign(paths.begin() + 1, paths.end());
  }
  for (const RankCost& rank : ranks) {
    const int64_t every = rank.every_step.value();
    maxima.ordinary = std::max(maxima.ordinary, every);
    for (size_t p = 0; p < phases; ++p) {
      maxima.refresh[p] =
          std::max(maxima.refresh[p], every + rank.refresh[p].value());
    }
  }
  return maxima;
}

int64_t sum_over_period(const StepMaxima& maxima, int64_t period) {
  return std::accumulate(
      maxima.refresh.begin(), maxima.refresh.end(),
      (period - std::ssize(maxima.refresh)) * maxima.ordinary);
}

}  // namespace

Ticks makespan(const PlanPart& part, const std::vector<RankCost>& ranks) {
  const StepMaxima maxima =
      step_maxima(ranks, index(part.phases), longest_team_paths(part));
  return Ticks(sum_over_period(maxima, part.period));
}

Ticks makespan(const Plan& plan, const std::vector<RankCost>& ranks) {
  std::vector<int64_t> paths(index(plan.phases) + 1, 0);
  for (const PlanPart& part : plan.parts) {
    const std::vector<int64_t> own = longest_team_paths(part);
    std::ranges::transform(paths, own, paths.begin(),
                           [](int64_t a, int64_t b) { return std::max(a, b); });
  }
  const StepMaxima maxima = step_maxima(ranks, index(plan.phases), paths);
  return Ticks(sum_over_period(maxima, plan.period));
}

namespace {

// Returns loads by rank of the world; `phase` is indexed by matrix of the whole
// plan.
std::vector<RankCost> loads_of(const Plan& plan, const PlanPart& part,
                               const std::vector<int32_t>& phase,
                               int32_t phases) {
  std::vector<int32_t> own;
  for (int32_t t : part.tensors) {
    const int32_t* first = plan.first_matrix.data() + t;
    own.insert(own.end(), phase.begin() + first[0], phase.begin() + first[1]);
  }
  std::vector<RankCost> ranks(static_cast<size_t>(part.grid.world()));
  add_loads(part, own, phases, ranks);
  std::vector<RankCost> world;
  for (int32_t r = 0; r < part.mesh.world(); ++r)
    world.push_back(ranks[static_cast<size_t>(in_grid(part, r).rank)]);
  return world;
}

PhaseOutlook outlook(const Plan& plan, int32_t phases) {
  const std::vector<int32_t> phase =
      phases_by_name(plan.model, plan.matrices, plan.options.splits, phases);
  std::vector<std::vector<RankCost>> of_parts;
  for (const PlanPart& part : plan.parts)
    of_parts.push_back(loads_of(plan, part, phase, phases));
  const StepMaxima maxima = step_maxima(sum_of_parts(plan, std::move(of_parts)),
                                        static_cast<size_t>(phases));
  PhaseOutlook out;
  out.phases = phases;
  out.mean_step = static_cast<double>(sum_over_period(maxima, plan.period)) /
                  static_cast<double>(plan.period);
  out.worst_step = static_cast<double>(maxima.ordinary);
  for (int64_t load : maxima.refresh) {
    out.worst_step = std::max(out.worst_step, static_cast<double>(load));
  }
  out.mean_seconds = out.mean_step * plan.cost_basis.seconds_per_tick;
  out.worst_seconds = out.worst_step * plan.cost_basis.seconds_per_tick;
  return out;
}

}  // namespace

std::vector<PhaseOutlook> phase_outlook(const Plan& plan) {
  std::vector<PhaseOutlook> out;
  if (plan.period <= 1) return out;
  for (int32_t phases : {plan.phases / 2, plan.phases, plan.phases * 2}) {
    if (phases < 1 || phases > plan.period) continue;
    out.push_back(outlook(plan, phases));
  }
  return out;
}

}  // namespace canzona
