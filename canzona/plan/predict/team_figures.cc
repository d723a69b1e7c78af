#include "canzona/plan/predict/team_figures.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/cost/team_cost.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {

int64_t longest_team_path(const PlanPart& part) {
  TeamTable teams(part);
  int64_t longest = 0;
  for (size_t m = 0; m < part.owners.size(); ++m)
    if (teams.is_team(m)) longest = std::max(longest, teams.of(m).path);
  return longest;
}

std::map<int32_t, int64_t> teams_by_size(const Plan& plan) {
  std::map<int32_t, int64_t> out;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.owners.size(); ++m)
      if (part.owners[m].size() > 1)
        ++out[static_cast<int32_t>(distinct(part.owners[m]).size())];
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

// Work of blocks with owners of their own, by kind of step.
class BlockWork {
 public:
  explicit BlockWork(const SettledRequest& plan)
      : plan_(plan),
        steps_(steps_of(plan.period, plan.phases)),
        sum_(steps_.size(), 0),
        largest_(steps_.size(), 0) {}

  void add(const MatrixCost& cost, int32_t phase, int64_t count) {
    const std::vector<int64_t> load =
        load_by_step(cost, phase, plan_.period, plan_.phases);
    for (size_t k = 0; k < load.size(); ++k) {
      sum_[k] += count * load[k];
      largest_[k] = std::max(largest_[k], load[k]);
    }
  }
  // In each step some rank has the largest block, and some rank the mean.
  int64_t bound(int64_t ranks) const {
    int64_t bound = 0;
    for (size_t k = 0; k < steps_.size(); ++k)
      bound += steps_[k] * std::max(largest_[k], (sum_[k] + ranks - 1) / ranks);
    return bound;
  }

 private:
  const SettledRequest& plan_;
  std::vector<int64_t> steps_, sum_, largest_;
};

// Adds the matrices of a stage, or those of one ep coordinate of it, as many
// times as `count` says.
void add_blocks(const PlanPart& part, int32_t stage, int32_t ep, int64_t count,
                BlockWork& work) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  const bool apart = largest_team(part.options, part.grid.tp) > 1;
  std::map<MatrixShape, std::map<MatrixShape, std::pair<MatrixCost, int64_t>>>
      kinds;  // of blocks, by shape of the matrix
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const Buffer& buffer = part.buffer_of(matrix.tensor);
    if (buffer.stage != stage || (ep >= 0 && buffer.ep != ep)) continue;
    const MatrixShape shape{matrix.rows, matrix.cols};
    const auto [known, is_new] = kinds.try_emplace(shape);
    const MatrixBlocks blocks(*rule, apart && is_new ? shape : MatrixShape{});
    if (is_new && !blocks.fall_apart())
      known->second[shape] = {part.costs[m], 1};
    for (int32_t b = 0; is_new && blocks.fall_apart() && b < blocks.count();
         ++b) {
      auto& [cost, number] = known->second[blocks.shape_of(b)];
      cost = blocks.least_cost(part.costs[m], b);
      ++number;
    }
    for (const auto& [sides, kind] : known->second)
      work.add(kind.first, part.phase[m], count * kind.second);
  }
}

int64_t block_bound(const PlanPart& part) {
  const Mesh& grid = part.grid;
  int64_t bound = 0;
  for (int32_t stage = 0; stage < grid.pp; ++stage) {
    BlockWork all(part);
    add_blocks(part, stage, -1, 1, all);
    bound = std::max(bound, all.bound(grid.ranks_per_stage()));
    for (int32_t ep = 0; grid.ep > 1 && ep < grid.ep; ++ep) {
      BlockWork own(part);
      add_blocks(part, stage, ep, 1, own);
      bound = std::max(bound, own.bound(grid.expert_homes() * grid.tp));
    }
  }
  return bound;
}

int64_t block_bound_of_parts(const Plan& plan) {
  int64_t bound = 0;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    BlockWork all(plan);
    for (const PlanPart& part : plan.parts)
      add_blocks(part, stage, -1, part.num_replicas(), all);
    bound = std::max(bound, all.bound(plan.mesh.ranks_per_stage()));
  }
  return bound;
}

bool is_in_blocks(const SettledRequest& plan) {
  return has_blocks(plan, *make_rule_facts(plan.rule, plan.rule_options));
}

}  // namespace

Ticks team_bound_of(const PlanPart& part) {
  if (is_in_blocks(part)) return Ticks(block_bound(part));
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
  const bool in_blocks = is_in_blocks(plan);
  return std::max(bound, Ticks(in_blocks ? block_bound_of_parts(plan)
                                         : bound_of_parts(plan)));
}

}  // namespace canzona
