#include "canzona/plan/predict/team_figures.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/cost/team_cost.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {

int64_t longest_team_path(const PlanPart& part) {
  TeamTable teams(part);
  int64_t longest = 0;
  for (size_t m = 0; m < part.owners.size(); ++m)
    if (teams.size(m) > 1) longest = std::max(longest, teams.of(m).path);
  return longest;
}

std::map<int32_t, int64_t> teams_by_size(const Plan& plan) {
  std::map<int32_t, int64_t> out;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.owners.size(); ++m)
      if (part.owners[m].size() > 1)
        ++out[static_cast<int32_t>(part.owners[m].size())];
  return out;
}

namespace {

// Matrices that cost the same, by buffer.
using AlikeMatrices = std::vector<std::map<MatrixShape, TeamItem>>;

AlikeMatrices items_of(const PlanPart& part) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  const int32_t most = largest_team(part.options, part.grid.tp);
  AlikeMatrices items(part.buffers.size());
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const int32_t bucket = part.bucket_of[index(matrix.tensor)];
    const MatrixShape shape{matrix.rows, matrix.cols};
    TeamItem& item = items[index(part.buckets[index(bucket)].buffer)][shape];
    if (item.sizes.empty()) item = {costs.sizes(shape, part.costs[m], most), 0};
    ++item.count;
  }
  return items;
}

// The bound of one stage; of the matrices of one ep coordinate where `ep` is
// one, on `ranks` ranks.
int64_t bound_of(const PlanPart& part, const AlikeMatrices& items,
                 int32_t stage, int32_t ep, int64_t ranks) {
  std::vector<TeamItem> own;
  for (size_t b = 0; b < items.size(); ++b) {
    const Buffer& buffer = part.buffers[b];
    if (buffer.stage != stage || (ep >= 0 && buffer.ep != ep)) continue;
    for (const auto& [shape, item] : items[b]) own.push_back(item);
  }
  return team_bound(own, ranks);
}

// All parts' matrices on the ranks of the whole.
int64_t bound_of_parts(const Plan& plan) {
  std::vector<std::vector<TeamItem>> items(index(plan.mesh.pp));
  for (const PlanPart& part : plan.parts) {
    const AlikeMatrices alike = items_of(part);
    for (size_t b = 0; b < alike.size(); ++b)
      for (auto [shape, item] : alike[b]) {
        item.count *= part.num_replicas();
        items[index(part.buffers[b].stage)].push_back(std::move(item));
      }
  }
  int64_t bound = 0;
  for (const std::vector<TeamItem>& of_stage : items)
    bound = std::max(bound, team_bound(of_stage, plan.mesh.ranks_per_stage()));
  return bound;
}

}  // namespace

Ticks team_bound_of(const PlanPart& part) {
  const AlikeMatrices items = items_of(part);
  const Mesh& grid = part.grid;
  int64_t bound = 0;
  for (int32_t stage = 0; stage < grid.pp; ++stage) {
    bound = std::max(bound,
                     bound_of(part, items, stage, -1, grid.ranks_per_stage()));
    for (int32_t ep = 0; grid.ep > 1 && ep < grid.ep; ++ep)
      bound = std::max(bound, bound_of(part, items, stage, ep,
                                       grid.expert_homes() * grid.tp));
  }
  return Ticks(bound);
}

Ticks team_bound_of(const Plan& plan) {
  Ticks bound;
  for (const PlanPart& part : plan.parts)
    bound = std::max(bound, team_bound_of(part));
  if (!cuts_experts_apart(plan)) return bound;
  return std::max(bound, Ticks(bound_of_parts(plan)));
}

}  // namespace canzona
