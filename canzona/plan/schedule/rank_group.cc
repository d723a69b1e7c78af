#include "canzona/plan/schedule/rank_group.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/sum_staging.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"

namespace canzona {
namespace {

RankGroup run_of_ranks(int32_t first, int32_t step, int32_t count) {
  return {first, step, count, count, 0};
}

// Returns one rank in each of `count` homes that begin at `first` and are
// `step` apart.
RankGroup run_of_homes(const PlanPart& part, const Coordinates& at,
                       int32_t first, int32_t step, int32_t count) {
  return run_of_ranks(part.mesh.rank(at.stage, first, at.t),
                      step * part.mesh.tp, count);
}

// Returns every z-th home of a replica, or of the whole stage.
RankGroup every(int32_t z, const PlanPart& part, const Coordinates& at,
                int32_t homes) {
  return run_of_homes(part, at, at.home / homes * homes + at.home % z, z,
                      homes / z);
}

// Returns z consecutive homes.
RankGroup neighbours(int32_t z, const PlanPart& part, const Coordinates& at) {
  return run_of_homes(part, at, at.home / z * z, 1, z);
}

RankGroup of_experts(const PlanPart& part, const Coordinates& at) {
  const Mesh& mesh = part.mesh;
  return {.first = mesh.rank(at.stage, mesh.home_of_expert(0, at.ep), at.t),
          .step = mesh.tp,
          .count = mesh.expert_homes(),
          .run = mesh.cp,
          .stride = mesh.cp * mesh.ep * mesh.tp};
}

// Returns the number of leading ranks that are on the first rank's node.
int32_t first_run(const PlanPart& part, const RankGroup& group) {
  const int32_t node = part.node_of(group.first);
  int32_t run = 1;
  while (run < group.count && part.node_of(group.rank(run)) == node) ++run;
  return run;
}

// True if every node holds `run` consecutive ranks of the group.
bool is_even(const PlanPart& part, const RankGroup& group, int32_t run) {
  if (group.count % run != 0) return false;
  for (int32_t i = 1; i < group.count; ++i) {
    const bool together =
        part.node_of(group.rank(i)) == part.node_of(group.rank(i - 1));
    if (together != (i % run != 0)) return false;
  }
  return true;
}

std::string from_to(const PlanPart& part, const RankGroup& group) {
  return cat(" data-parallel ranks from rank ",
             part.rank_in_whole(group.rank(0)), " to ",
             part.rank_in_whole(group.rank(group.count - 1)));
}

void check_group(const PlanPart& part, const RankGroup& group,
                 const char* name) {
  if (is_even(part, group, first_run(part, group))) return;
  throw UsageError(
      cat("collectives node: the group of ", name, " = ", group.count,
          from_to(part, group),
          " does not have the same number of ranks on every node of ",
          part.options.ranks_per_node,
          "; choose another size, or collectives=direct"));
}

// "4, 4, 3": ranks of the group on each of its nodes.
std::string counts_by_node(const PlanPart& part, const RankGroup& group) {
  constexpr int kMost = 8;
  std::string text;
  int num_nodes = 0;
  for (int32_t begin = 0, end = 0; begin < group.count; begin = end) {
    const int32_t node = part.node_of(group.rank(begin));
    while (end < group.count && part.node_of(group.rank(end)) == node) ++end;
    if (++num_nodes > kMost) return text + ", …";
    text += cat(begin == 0 ? "" : ", ", end - begin);
  }
  return text;
}

// True if sums in two levels have the bits of a single one, and both levels are
// runs of runs.
bool allows_levels(const PlanPart& part, const RankGroup& group) {
  const int32_t run = first_run(part, group);
  return is_even(part, group, run) && is_subtree(run, group.count) &&
         (group.run % run == 0 || run % group.run == 0);
}

std::string obstacle_of(const PlanPart& part, const RankGroup& group) {
  if (allows_levels(part, group)) return "";
  return cat("the group of ", group.count, from_to(part, group), " has ",
             counts_by_node(part, group), " ranks on its nodes of ",
             part.options.ranks_per_node,
             ", not the same power of two on each");
}

// Calls body(group) for every group that may go in two levels.
template <class Body>
void each_group_with_levels(const PlanPart& part, const Body& body) {
  const Mesh& mesh = part.mesh;
  for (const GroupKind kind : {GroupKind::kGradients, GroupKind::kParameters,
                               GroupKind::kSums, GroupKind::kExperts}) {
    if (!has_levels(part, kind)) continue;
    for (int32_t stage = 0; stage < mesh.pp; ++stage)
      for (int32_t home = 0; home < mesh.homes(); ++home)
        for (int32_t t = 0; t < mesh.tp; ++t) {
          const int32_t rank = mesh.rank(stage, home, t);
          const RankGroup group = group_of(part, rank, kind);
          if (group.first == rank) body(group);
        }
  }
}

bool reaches_over_nodes(const PlanPart& part) {
  bool found = false;
  each_group_with_levels(part, [&](const RankGroup& group) {
    const int32_t run = first_run(part, group);
    found |= run > 1 && run < group.count;
  });
  return found;
}

std::string first_obstacle(const PlanPart& part) {
  std::string first;
  each_group_with_levels(part, [&](const RankGroup& group) {
    if (first.empty()) first = obstacle_of(part, group);
  });
  return first;
}

bool is_plain_part(const PlanPart& part) {
  return is_plain(part.options.zero.sizes, part.mesh.homes());
}

}  // namespace

int32_t RankGroup::number_of(int32_t rank) const {
  const int32_t away = rank - first;
  if (away < 0) return -1;
  const int32_t block = stride > 0 ? away / stride : 0;
  const int32_t inside = away - block * stride;
  const int32_t i = block * run + inside / step;
  const bool member = inside % step == 0 && inside / step < run && i < count;
  return member ? i : -1;
}

RankGroup group_of(const PlanPart& part, int32_t rank, GroupKind kind) {
  const Coordinates at = coordinates_of(part.mesh, rank);
  const int32_t homes = part.mesh.homes();
  const auto [z1, z2, z3] = with_states(part.options.zero.sizes, homes);
  switch (kind) {
    case GroupKind::kAll:
      return run_of_ranks(0, 1, part.mesh.world());
    case GroupKind::kSums:
      return every(z2, part, at, z1);
    case GroupKind::kExperts:
      return of_experts(part, at);
    case GroupKind::kPublish:
      return every(z3, part, at, z1);
    case GroupKind::kReplicas:
      return every(adds_everywhere(part) ? z2 : z1, part, at, homes);
    case GroupKind::kAllGroups:
      return every(z2, part, at, homes);
    case GroupKind::kParameters:
      return neighbours(z3, part, at);
    case GroupKind::kGradients:
      return neighbours(z2, part, at);
    case GroupKind::kExchange:
      return run_of_ranks(first_of_home(part.grid, rank), 1, part.grid.tp);
  }
  CANZONA_CHECK(false, "no such kind of group");
}

bool has_groups(const PlanPart& part, GroupKind kind) {
  const ZeroSizes& zero = part.options.zero.sizes;
  switch (kind) {
    case GroupKind::kAll:
    case GroupKind::kSums:
      return true;
    case GroupKind::kExperts:
      return part.mesh.ep > 1;
    case GroupKind::kPublish:
      return zero.z2 != zero.z3;
    case GroupKind::kReplicas:
      return part.num_replicas() > 1 || adds_everywhere(part);
    case GroupKind::kAllGroups:
      return adds_replicas_at_once(part);
    case GroupKind::kParameters:
      return zero.z3 > 1;
    case GroupKind::kGradients:
      return zero.z2 > 1;
    case GroupKind::kExchange:
      return part.grid.tp > 1;
  }
  return false;
}

// Depends only on the kind and on how the part is cut, because settled_reach()
// uses it to settle kAuto.
bool has_levels(const PlanPart& part, GroupKind kind) {
  const ZeroSizes& zero = part.options.zero.sizes;
  switch (kind) {
    case GroupKind::kSums:
      return is_plain_part(part);
    case GroupKind::kExperts:
      return is_plain_part(part) && part.mesh.ep > 1;
    case GroupKind::kParameters:
      return zero.z3 > 1;
    case GroupKind::kGradients:
      return zero.z2 > 1;
    default:
      return false;
  }
}

Levels levels_of(const PlanPart& part, int32_t rank, GroupKind kind) {
  const RankGroup group = group_of(part, rank, kind);
  return has_levels(part, kind) ? levels_of(part, group)
                                : Levels{.inside = group.count};
}

Levels levels_of(const PlanPart& part, const RankGroup& group) {
  const Levels direct{.inside = group.count};
  if (part.options.zero.reach == Reach::kDirect) return direct;
  const int32_t run = first_run(part, group);
  return run == 1 ? direct : Levels{.inside = run, .across = group.count / run};
}

RankGroup inside_level(const RankGroup& group, const Levels& levels,
                       int32_t rank) {
  const int32_t i = group.number_of(rank);
  const int32_t first = group.rank(i - i % levels.inside);
  if (levels.inside <= group.run)
    return run_of_ranks(first, group.step, levels.inside);
  return {first, group.step, levels.inside, group.run, group.stride};
}

RankGroup across_level(const RankGroup& group, const Levels& levels,
                       int32_t rank) {
  const int32_t i = group.number_of(rank);
  const int32_t first = group.rank(i % levels.inside);
  if (levels.across == 1)
    return run_of_ranks(first, group.step * levels.inside, 1);
  if (levels.inside >= group.run)
    return run_of_ranks(first, levels.inside / group.run * group.stride,
                        levels.across);
  return {first, group.step * levels.inside, levels.across,
          group.run / levels.inside, group.stride};
}

int64_t sum_staging_of(const PlanPart& part, int32_t rank) {
  int64_t bytes = 0;
  for (const GroupKind kind :
       {GroupKind::kSums, GroupKind::kExperts, GroupKind::kReplicas,
        GroupKind::kAllGroups, GroupKind::kGradients}) {
    if (!has_groups(part, kind)) continue;
    const auto [inside, across] = levels_of(part, rank, kind);
    bytes += sum_staging_bytes(inside);
    if (across > 1) bytes += sum_staging_bytes(across);
  }
  return bytes;
}

void check_levels(const PlanPart& part) {
  const Mesh& mesh = part.mesh;
  if (part.options.zero.reach == Reach::kDirect) return;
  if (is_plain_part(part)) {
    const std::string obstacle = first_obstacle(part);
    if (obstacle.empty()) return;
    throw UsageError(cat("collectives node: ", obstacle,
                         "; choose another mesh or number of ranks per node, "
                         "or collectives=auto or collectives=direct"));
  }
  const auto check = [&](GroupKind kind, int32_t z, const char* name) {
    for (int32_t stage = 0; stage < mesh.pp; ++stage)
      for (int32_t home = 0; home < mesh.homes(); home += z)
        for (int32_t t = 0; t < mesh.tp; ++t)
          check_group(part, group_of(part, mesh.rank(stage, home, t), kind),
                      name);
  };
  check(GroupKind::kGradients, part.options.zero.sizes.z2, "z2");
  check(GroupKind::kParameters, part.options.zero.sizes.z3, "z3");
}

Reach settled_reach(const Plan& plan) {
  const Reach asked = plan.options.zero.reach;
  if (asked == Reach::kDirect) return asked;
  const bool reaches =
      std::ranges::any_of(plan.parts, [](const PlanPart& part) {
        return part.options.zero.reach != Reach::kDirect &&
               reaches_over_nodes(part);
      });
  if (asked == Reach::kPerNode) {
    for (const PlanPart& part : plan.parts) check_levels(part);
    const bool plain = is_plain(plan.options.zero, plan.mesh.homes());
    return plain && !reaches ? Reach::kDirect : asked;
  }
  return reaches && why_direct(plan).empty() ? Reach::kPerNode : Reach::kDirect;
}

std::string why_direct(const Plan& plan) {
  for (const PlanPart& part : plan.parts) {
    // Plain parts beside separate experts are always sent directly (plan.h).
    if (cuts_experts_apart(plan) && is_plain_part(part)) continue;
    std::string obstacle = first_obstacle(part);
    if (!obstacle.empty()) return obstacle;
  }
  return "";
}

}  // namespace canzona
