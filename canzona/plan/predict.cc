#include "canzona/plan/predict.h"

#include <algorithm>
#include <map>

#include "canzona/base/text.h"
#include "canzona/plan/loads.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/predict_in_parts.h"
#include "canzona/plan/predict_parts.h"
#include "canzona/plan/predict_zero.h"

namespace canzona {

std::string_view to_string(Collective collective) {
  constexpr std::array<std::string_view, kNumCollectives> kNames{
      "reduce-scatter", "all-reduce", "gather",
      "scatter",        "all-gather", "broadcast"};
  return kNames[static_cast<size_t>(collective)];
}

int64_t RankCost::bytes_sent() const {
  int64_t sum = 0;
  for (const WireBytes& w : wire) sum += w.sent();
  return sum;
}

int64_t matrix_elements_at(const Bucket& bucket, int32_t h) {
  if (bucket.cuts.empty()) return 0;
  const auto i = static_cast<size_t>(h);
  return bucket.cuts[i + 1] - bucket.cuts[i];
}

int64_t adamw_elements_at(const Bucket& bucket, int32_t h) {
  if (bucket.adamw_cuts.empty()) return 0;
  const auto i = static_cast<size_t>(h);
  return bucket.adamw_cuts[i + 1] - bucket.adamw_cuts[i];
}

int64_t longest_run(const Bucket& bucket) {
  int64_t longest = 0;
  for (size_t h = 0; h + 1 < bucket.cuts.size(); ++h) {
    longest = std::max(longest, bucket.cuts[h + 1] - bucket.cuts[h]);
  }
  return longest;
}

int64_t bytes_per_parameter(const Plan& plan) {
  return bytes_per_parameter(plan.options.parameters);
}

namespace {

int64_t shard_sum(const Plan& plan, const Bucket& bucket, size_t first,
                  size_t last) {
  int64_t sum = 0;
  for (size_t i = first; i < last; ++i) {
    const Tensor& tensor =
        plan.model.tensors[static_cast<size_t>(bucket.tensors[i])];
    if (!tensor.frozen) sum += shard_elements(plan.grid, tensor);
  }
  return sum;
}

}  // namespace

int64_t matrix_elements(const Plan& plan, const Bucket& bucket) {
  return shard_sum(plan, bucket, 0,
                   static_cast<size_t>(bucket.num_matrix_tensors));
}

int64_t adamw_elements(const Plan& plan, const Bucket& bucket) {
  return shard_sum(plan, bucket, static_cast<size_t>(bucket.num_matrix_tensors),
                   bucket.tensors.size());
}

void add_loads(const Plan& plan, std::vector<RankCost>& ranks) {
  for (RankCost& rank : ranks) {
    rank.refresh.assign(static_cast<size_t>(plan.phases), Ticks());
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const auto phase = static_cast<size_t>(plan.phase[m]);
    const int64_t elements = plan.matrices[m].rows * plan.matrices[m].cols;
    each_computing_rank(plan, m, [&](int32_t r) {
      RankCost& rank = ranks[static_cast<size_t>(r)];
      rank.every_step += plan.costs[m].every_step;
      rank.refresh[phase] += plan.costs[m].refresh;
      rank.computed += elements;
      ++rank.num_matrices;
    });
  }
}

namespace {

// Updates that every home repeats were counted once per ep coordinate.
void share_repeated(const Plan& plan, std::vector<RankCost>& ranks) {
  if (plan.traffic != Traffic::kAllReduce) return;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int32_t counted = counted_rank(plan.grid, static_cast<int32_t>(r));
    if (static_cast<size_t>(counted) != r) {
      ranks[r] = ranks[static_cast<size_t>(counted)];
    }
  }
}

}  // namespace

namespace {

Nodes nodes_of(const Plan& plan, int32_t replica) {
  Nodes nodes;
  for (int32_t r = 0; r < plan.grid.world(); ++r)
    nodes.push_back(plan.node_of(plan.world_rank(r, replica)));
  return nodes;
}

// Which ranks share a node, whatever its number.
Nodes pattern_of(Nodes nodes) {
  int32_t number = -1, last = -1;
  for (int32_t& node : nodes) {
    if (node != last) ++number;
    last = node;
    node = number;
  }
  return nodes;
}

std::vector<RankCost> predict_replica(const Plan& plan, const Nodes& nodes) {
  std::vector<RankCost> ranks(nodes.size());
  add_loads(plan, ranks);
  add_matrix_memory(plan, ranks);
  share_repeated(plan, ranks);
  add_exchange_bytes(plan, nodes, ranks);
  add_step_times(plan, nodes, ranks);
  add_bucket_memory(plan, ranks);
  add_pools(plan, ranks);
  add_bucket_bytes(plan, nodes, ranks);
  add_broadcast_times(plan, ranks);
  add_element_wise(plan, ranks);
  return ranks;
}

}  // namespace

std::vector<RankCost> predict(const Plan& plan) {
  if (is_in_parts(plan)) return sum_of_parts(plan, predict);
  std::map<Nodes, std::vector<RankCost>> known;
  std::vector<RankCost> world(static_cast<size_t>(plan.mesh.world()));
  for (int32_t replica = 0; replica < plan.num_replicas(); ++replica) {
    const Nodes pattern = pattern_of(nodes_of(plan, replica));
    auto found = known.find(pattern);
    if (found == known.end())
      found = known.emplace(pattern, predict_replica(plan, pattern)).first;
    for (int32_t r = 0; r < plan.grid.world(); ++r)
      world[static_cast<size_t>(plan.world_rank(r, replica))] =
          found->second[static_cast<size_t>(r)];
  }
  add_replica_sums(plan, world);
  return world;
}

namespace {

// Largest load of an ordinary step, and of the refresh step of each phase.
struct StepMaxima {
  int64_t ordinary = 0;
  std::vector<int64_t> refresh;
};

StepMaxima step_maxima(const std::vector<RankCost>& ranks, size_t phases) {
  StepMaxima maxima;
  maxima.refresh.assign(phases, 0);
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

}  // namespace

Ticks makespan(const Plan& plan, const std::vector<RankCost>& ranks) {
  const auto phases = static_cast<size_t>(plan.phases);
  const StepMaxima maxima = step_maxima(ranks, phases);
  int64_t sum = (plan.period - plan.phases) * maxima.ordinary;
  for (int64_t load : maxima.refresh) sum += load;
  return Ticks(sum);
}

namespace {

// Of the ranks of the grid; of all where that is no single one.
std::vector<RankCost> loads_of(const Plan& plan) {
  if (is_in_parts(plan))
    return sum_of_parts(plan, [](const Plan& part) {
      std::vector<RankCost> world;
      const std::vector<RankCost> ranks = loads_of(part);
      for (int32_t r = 0; r < part.mesh.world(); ++r)
        world.push_back(ranks[static_cast<size_t>(part.grid_rank(r))]);
      return world;
    });
  std::vector<RankCost> ranks(static_cast<size_t>(plan.grid.world()));
  add_loads(plan, ranks);
  return ranks;
}

PhaseOutlook outlook(const Plan& plan, int32_t phases) {
  Plan other = plan;
  other.rule_options["phases"] = cat(phases);
  derive(other);
  const std::vector<RankCost> ranks = loads_of(other);
  const StepMaxima maxima = step_maxima(ranks, static_cast<size_t>(phases));
  PhaseOutlook out;
  out.phases = phases;
  out.mean_step = static_cast<double>(makespan(other, ranks).value()) /
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
