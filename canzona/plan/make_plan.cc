#include "canzona/plan/make_plan.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/plan/search/owners.h"
#include "canzona/plan/search/teams.h"
#include "canzona/plan/strategies/strategy.h"
#include "canzona/plan/validate/validate.h"

namespace canzona {
using namespace plan;
namespace {

PlanOptions filled_in(PlanOptions options, const Strategy& strategy) {
  check_options(options);
  if (!options.alpha) options.alpha = strategy.alpha;
  if (!options.weight) options.weight = strategy.weight;
  const bool repeats = std::string_view(strategy.micro_groups).empty();
  if (repeats && !options.micro_groups.empty()) {
    throw UsageError(cat("micro-groups ", quoted(options.micro_groups),
                         ": strategy ", strategy.name,
                         " repeats updates on every tp rank and has no "
                         "micro-groups"));
  }
  if (options.micro_groups.empty())
    options.micro_groups = strategy.micro_groups;
  if (!repeats) find_micro_group_mode(options.micro_groups);
  return options;
}

void check_zero_of(const ZeroOptions& zero, const Strategy& strategy) {
  if (is_scattered(strategy.layout.traffic)) return;
  for (const ZeroSizes& sizes : {zero.sizes, zero.experts})
    if (sizes.z2 != sizes.z3)
      throw UsageError(cat("zero ", to_string(sizes), ": strategy ",
                           strategy.name, " requires z2 = z3"));
  if (zero.replica_sum == ReplicaSum::kAllReduce)
    throw UsageError(cat("replica-sum allreduce: strategy ", strategy.name,
                         " does not support it"));
}

SlotBytes slot_bytes(const PlanPart& part) {
  SlotBytes most;
  for (int32_t stage = 0; stage < part.grid.pp; ++stage) {
    const PoolSizes pools = pool_sizes(part, stage);
    most.usual = std::max(
        most.usual, pools.slot * (bytes_per_parameter(part) + kBytesPerFp32));
    most.large =
        std::max(most.large, pools.large_slot * bytes_per_parameter(part));
  }
  return most;
}

}  // namespace

SlotBytes slot_bytes(const Plan& plan) {
  SlotBytes slots;
  for (const PlanPart& part : kinds_of_parts(plan)) {
    const SlotBytes more = slot_bytes(part);
    slots = {slots.usual + more.usual, slots.large + more.large};
  }
  return slots;
}

int32_t SlotBytes::fit_in(int64_t room, const Model& model) const {
  const int64_t count =
      std::max<int64_t>(room - large, 0) / std::max<int64_t>(usual, 1);
  return static_cast<int32_t>(std::min<int64_t>(count, num_modules(model)));
}

namespace {

// Returns as many slots as the cap leaves room for, or the usual number.
// `least` is a plan without prefetch.
int32_t chosen_prefetch(const Plan& least) {
  const int64_t cap = least.options.memory_cap_bytes;
  if (cap == 0) return kUsualPrefetch;
  int64_t taken = 0;
  for (const RankCost& rank : predict(least))
    taken = std::max(taken, rank.memory.total().value());
  return slot_bytes(least).fit_in(cap - taken, least.model);
}

// If every tp rank repeats the update, there is nothing to group: each matrix
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
    // Nothing moves with a single tp rank: one owner, one round.
    for (int32_t m : matrices) a.owner[static_cast<size_t>(m)] = 0;
  }
}

Assignment assign_all(const Problem& p, const Strategy& strategy) {
  Assignment a;
  a.home.assign(p.model.tensors.size(), kEveryHome);
  a.owner.assign(p.matrices.size(), 0);
  a.micro_group.assign(p.matrices.size(), 0);
  strategy.assign(p, a);
  assign_micro_groups(p, strategy, a);
  return a;
}

// Returns the request with every default filled in.
PlanRequest settled(PlanRequest request, const Strategy& strategy) {
  check_mesh(request.mesh, request.model);
  check_splits(request.options.splits, request.rule.name());
  request.options = filled_in(request.options, strategy);
  ZeroOptions& zero = request.options.zero;
  zero = resolve_zero(zero, request.mesh, request.model);
  check_zero_of(zero, strategy);
  return request;
}

// Throws UsageError if groups do not allow the requested reach.
void settle_reach(Plan& plan) {
  const Reach reach = settled_reach(plan);
  if (reach == plan.options.zero.reach) return;
  plan.options.zero.reach = reach;
  plan.options.zero = settled(plan.options.zero, plan.mesh.homes());
  for (PlanPart& part : plan.parts) part.options = options_of_part(plan, part);
}

void settle_buckets(const Strategy& strategy, Plan& plan) {
  if (plan.options.bucket_elements != kAutoBucketElements) return;
  plan.options.bucket_elements =
      strategy.layout.widens_buckets
          ? even_bucket_elements(plan, strategy.layout.join_small_tail)
          : kUsualBucketElements;
  for (PlanPart& part : plan.parts) part.options = options_of_part(plan, part);
}

Plan undecided(const PlanRequest& request, const Strategy& strategy) {
  Plan plan;
  if (request.may_take != nullptr)
    plan.model = std::move(*request.may_take);
  else
    plan.model = request.model;
  for (Tensor& tensor : plan.model.tensors) {
    // Heads of columns are part of a plan that cuts them.
    if (!request.options.splits.output_head && is_output(tensor.sections))
      tensor.sections.clear();
    // The number of dimensions in the file mattered to routing only.
    tensor.flattened = false;
    // An element-wise rule owns no matrix: everything is cut like AdamW.
    tensor.matrix_rule &= request.rule.needs_whole_matrix();
  }
  plan.mesh = request.mesh;
  plan.rule = request.rule.name();
  plan.rule_options = request.rule.options();
  plan.options = request.options;
  plan.traffic = strategy.layout.traffic;
  plan.matrices = split_into_matrices(plan.model, plan.options.splits);
  const CostModel cost(request.rule, request.cost_table,
                       request.flops_per_second);
  plan.cost_basis = cost.basis();
  plan.costs.reserve(plan.matrices.size());
  for (const Matrix& m : plan.matrices)
    plan.costs.push_back(cost.cost(shape_of(m)));
  derive_request(plan);
  make_parts(plan);
  settle_reach(plan);
  settle_buckets(strategy, plan);
  check_teams(plan, request.rule);
  return plan;
}

void push_owners(const Assignment& a, OwnerLists& owners) {
  for (size_t m = 0; m < a.owner.size(); ++m) {
    const auto team = a.teams.find(static_cast<int32_t>(m));
    if (team != a.teams.end())
      owners.push_back(team->second);
    else if (a.owner[m] == kEveryTpRank)
      owners.push_back(std::span<const int32_t>());
    else
      owners.push_back(a.owner[m]);
  }
}

// Whether several ranks may share a matrix.
enum class Sharing { kNone, kWhereItPays };

void decide(const PlanRequest& request, const Strategy& strategy,
            int64_t memory_cap, Sharing sharing, PlanPart& part) {
  Problem p = make_problem(part, request.rule, request.cost_table,
                           strategy.layout.join_small_tail);
  p.options.memory_cap_bytes = memory_cap;
  Assignment a = assign_all(p, strategy);
  if (sharing == Sharing::kWhereItPays) {
    share_matrices(part, p, a);
    own_blocks(part, p, a);
  }
  part.buckets = lay_out(p, strategy.layout, a);
  part.buffers = std::move(p.buffers);
  part.home = a.home;
  push_owners(a, part.owners);
  part.micro_group = a.micro_group;
}

// Owners do not depend on the prefetch.
void set_prefetch(int32_t prefetch, Plan& plan) {
  plan.options.zero.prefetch = prefetch;
  for (PlanPart& part : plan.parts) part.options = options_of_part(plan, part);
}

bool chooses_prefetch(const Plan& plan) {
  const ZeroOptions& zero = plan.options.zero;
  return zero.prefetch == kAutoPrefetch && !is_plain(zero, plan.mesh.homes());
}

// Everything but the prefetch, which is 0 if it is to be chosen, and figures.
Plan owners_decided(const PlanRequest& all, const Strategy& strategy,
                    Sharing sharing, bool& chooses) {
  Plan plan = undecided(all, strategy);
  chooses = chooses_prefetch(plan);
  if (chooses) set_prefetch(0, plan);
  // Parts that share a rank's memory cannot respect the cap individually.
  const int64_t cap =
      cuts_experts_apart(plan) ? 0 : plan.options.memory_cap_bytes;
  for (PlanPart& part : plan.parts) decide(all, strategy, cap, sharing, part);
  derive_parts(plan);
  return plan;
}

Plan decided(const PlanRequest& all, const Strategy& strategy,
             Sharing sharing) {
  bool chooses = false;
  Plan plan = owners_decided(all, strategy, sharing, chooses);
  if (chooses) set_prefetch(chosen_prefetch(plan), plan);
  summarize(plan);
  return plan;
}

// The search for teams estimates the step of a home. What counts is the step
// predicted rank by rank, and a memory cap that single owners meet.
bool is_worth_it(const Plan& shared, const Plan& whole) {
  const int64_t cap = whole.options.memory_cap_bytes;
  const auto fits = [cap](const Plan& plan) {
    return cap == 0 || plan.summary.memory_per_rank_max.value() <= cap;
  };
  return shared.summary.step_seconds_mean <=
             kWorthTeams * whole.summary.step_seconds_mean &&
         shared.summary.makespan <= whole.summary.makespan &&
         (fits(shared) || !fits(whole));
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
  const Strategy& strategy = find_strategy(request.options.strategy);
  PlanRequest all = settled(request, strategy);
  // The model may be needed twice.
  if (all.options.teams != kTeamsOff) all.may_take = nullptr;
  Plan plan = decided(all, strategy, Sharing::kWhereItPays);
  if (has_teams(plan)) {
    Plan whole = decided(all, strategy, Sharing::kNone);
    if (!is_worth_it(plan, whole)) plan = std::move(whole);
  }
  plan.digest = digest_of(plan);
  return plan;
}

PlanDraft draft_plan(const PlanRequest& request) {
  const Strategy& strategy = find_strategy(request.options.strategy);
  const PlanRequest all = settled(request, strategy);
  PlanDraft draft;
  draft.plan = owners_decided(all, strategy, Sharing::kWhereItPays,
                              draft.chooses_prefetch);
  return draft;
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
