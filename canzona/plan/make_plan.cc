#include "canzona/plan/make_plan.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/layout.h"
#include "canzona/plan/legs.h"
#include "canzona/plan/modules.h"
#include "canzona/plan/plan_json.h"
#include "canzona/plan/predict_parts.h"
#include "canzona/plan/predict_zero.h"
#include "canzona/plan/strategy.h"
#include "canzona/plan/summary.h"

namespace canzona {
namespace {

PlanOptions filled_in(PlanOptions options, const Strategy& strategy) {
  check_options(options);
  if (!options.alpha) options.alpha = strategy.alpha;
  if (!options.weight) options.weight = strategy.weight;
  const bool repeats = std::string_view(strategy.micro_groups).empty();
  if (repeats && !options.micro_groups.empty()) {
    throw UsageError(cat("--micro-groups ", quoted(options.micro_groups),
                         ": strategy ", strategy.name,
                         " repeats updates on every tp rank and has no "
                         "micro-groups"));
  }
  if (options.micro_groups.empty())
    options.micro_groups = strategy.micro_groups;
  if (!repeats) find_micro_group_mode(options.micro_groups);
  return options;
}

// What has no meaning for these sizes is left as it comes from nowhere.
void fill_in_zero(ZeroOptions& zero, const Mesh& mesh,
                  const Strategy& strategy) {
  zero.sizes = with_states(zero.sizes, mesh.homes());
  check_zero(zero.sizes, mesh.homes());
  const bool spreads = is_scattered(strategy.traffic);
  if (!spreads && zero.sizes.z2 != zero.sizes.z3)
    throw UsageError(cat("--zero ", to_string(zero.sizes), ": strategy ",
                         strategy.name, " wants z2 = z3"));
  if (!spreads && zero.replica_sum == ReplicaSum::kAllReduce)
    throw UsageError(cat("--replica-sum allreduce: strategy ", strategy.name,
                         " has its own way"));
  const bool plain = zero.sizes == ZeroSizes{mesh.homes(), 1, 1};
  if (plain) zero = {.sizes = zero.sizes};
  if (plain) return;
  if (zero.sizes.places() > 1) return;
  zero.prefetch = 0;
  zero.reach = Reach::kDirect;
}

// As many slots as the cap leaves room for, or the usual number.
int32_t chosen_prefetch(Plan plan) {
  const int64_t cap = plan.options.memory_cap_bytes;
  if (cap == 0) return kUsualPrefetch;
  plan.options.zero.prefetch = 0;
  int64_t least = 0, slot = 1, large = 0;
  for (const RankCost& rank : predict(plan))
    least = std::max(least, rank.memory.total().value());
  for (int32_t stage = 0; stage < plan.grid.pp; ++stage) {
    const PoolSizes pools = pool_sizes(plan, stage);
    slot = std::max(slot,
                    pools.slot * (bytes_per_parameter(plan) + kBytesPerFp32));
    large = std::max(large, pools.large_slot * bytes_per_parameter(plan));
  }
  const int64_t room = std::max<int64_t>(cap - least - large, 0) / slot;
  return static_cast<int32_t>(std::min<int64_t>(room, num_modules(plan.model)));
}

// Where every tp rank repeats the update there is nothing to group: each matrix
// is gathered by itself.
void number_repeated(const Problem& p, const Assignment& homes,
                     std::vector<int32_t>& micro_group) {
  for (const auto& matrices : matrices_by_home(p, homes)) {
    int32_t round = 0;
    for (int32_t m : matrices) {
      micro_group[static_cast<size_t>(m)] = round++;
    }
  }
}

void assign_micro_groups(const Problem& p, const Strategy& strategy,
                         Assignment& a) {
  if (p.options.micro_groups.empty()) {
    Assignment everywhere = a;
    for (int32_t& home : everywhere.home) home = std::max(home, 0);
    number_repeated(p, everywhere, a.micro_group);
    return;
  }
  const MicroGroupMode& mode = find_micro_group_mode(p.options.micro_groups);
  const bool joint =
      strategy.chooses_owners && std::string_view(mode.name) == "balanced";
  for (const auto& matrices : matrices_by_home(p, a)) {
    if (p.grid.tp > 1) {
      mode.assign(p, matrices, joint, a);
      continue;
    }
    // Nothing moves: one owner, one round.
    for (int32_t m : matrices) a.owner[static_cast<size_t>(m)] = 0;
  }
}

Assignment decide(const Problem& p, const Strategy& strategy) {
  Assignment a;
  a.home.assign(p.model.tensors.size(), kEveryHome);
  a.owner.assign(p.matrices.size(), 0);
  a.micro_group.assign(p.matrices.size(), 0);
  strategy.assign(p, a);
  assign_micro_groups(p, strategy, a);
  return a;
}

Plan assemble(const Mesh& mesh, const Problem& p, const Strategy& strategy,
              const Assignment& a) {
  Plan plan;
  plan.model = p.model;
  // How many dimensions the file had mattered to routing only.
  for (Tensor& tensor : plan.model.tensors) tensor.flattened = false;
  plan.grid = p.grid;
  plan.mesh = mesh;
  plan.rule = p.rule.name();
  plan.rule_options = p.rule.options();
  plan.options = p.options;
  plan.cost_basis = p.cost_basis;
  plan.traffic = strategy.traffic;
  plan.matrices = p.matrices;
  plan.costs = p.costs;
  plan.buffers = p.buffers;
  plan.buckets = lay_out(p, strategy, a);
  plan.home = a.home;
  for (int32_t owner : a.owner) {
    if (owner == kEveryTpRank) {
      plan.owners.push_back(std::span<const int32_t>());
    } else {
      plan.owners.push_back(owner);
    }
  }
  plan.micro_group = a.micro_group;
  return plan;
}

Plan plan_routed(PlanRequest request) {
  check_mesh(request.mesh, request.model);
  const Strategy& strategy = find_strategy(request.options.strategy);
  request.options = filled_in(request.options, strategy);
  fill_in_zero(request.options.zero, request.mesh, strategy);
  check_reach(request.mesh, request.options);
  const Problem p = make_problem(request, strategy.join_small_tail);
  Plan plan = assemble(request.mesh, p, strategy, decide(p, strategy));
  derive(plan);
  if (plan.grid.places > 1 && plan.options.zero.prefetch == kAutoPrefetch)
    plan.options.zero.prefetch = chosen_prefetch(plan);
  plan.summary = summarize(plan, predict(plan));
  plan.digest = digest_of(plan);
  return plan;
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
  if (!request.rule.needs_whole_matrix()) {
    // An element-wise rule owns no matrix: everything is cut like AdamW.
    Model model = request.model;
    for (Tensor& tensor : model.tensors) tensor.matrix_rule = false;
    return plan_routed({model, request.mesh, request.rule, request.options,
                        request.cost_table});
  }
  return plan_routed(request);
}

std::vector<StrategyInfo> strategies() {
  std::vector<StrategyInfo> out;
  for (const Strategy& s : strategy_table()) {
    out.push_back({s.name, s.summary, s.micro_groups});
  }
  return out;
}

std::vector<std::string> micro_group_modes() {
  std::vector<std::string> out;
  for (const MicroGroupMode& mode : micro_group_table()) {
    out.emplace_back(mode.name);
  }
  return out;
}

}  // namespace canzona
