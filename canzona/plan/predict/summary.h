// The figures by which plans are compared.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona::plan {

// How well a plan is balanced: the ratios of `canzona compare`.

// Largest over mean, over the ranks of one axis.
struct AxisBalance {
  double memory_max_over_mean = 1;       // elements, matrix-rule tensors
  double shard_flops_max_over_mean = 1;  // 20·max·min² of TP-shard shapes
  double cost_max_over_mean = 1;         // true cost
};

struct Balance {
  AxisBalance dp;                         // over homes; the worst stage
  double bucket_bytes_max_over_even = 1;  // worst bucket, matrix-rule tensors
  double j_dp = 0;       // largest deviation from the mean, elements
  double j_comm = 0;     // sum of deviations from even shares, elements
  AxisBalance tp;        // over tp, home 0 of stage 0
  AxisBalance tp_worst;  // over tp, worst home
  double makespan_over_mean = 1;
  double makespan_over_bound = 1;   // includes teams if they are allowed
  double bound_over_mean = 1;       // with a single owner per matrix
  double team_bound_over_mean = 0;  // 0: teams are off
  int32_t idle_ranks = 0;
};

Balance measure_balance(const Plan& plan);

// Returns Balance::bucket_bytes_max_over_even alone.
double bucket_unevenness(const Plan& plan);

// Figures of a plan that follow from its teams.

// Returns the longest path of a team in an ordinary step, then in the refresh
// step of each phase; 0 without teams.
std::vector<int64_t> longest_team_paths(const PlanPart& part);

// Returns how many matrices are shared by teams of each size.
std::map<int32_t, int64_t> teams_by_size(const Plan& plan);

// No plan with such teams has a smaller makespan (makespan/bound.h).
Ticks team_bound_of(const Plan& plan);
Ticks team_bound_of(const PlanPart& part);

PlanSummary summarize(const PlanPart& part, const std::vector<RankCost>& ranks);
PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks);

// Fills in the summaries of the plan and of all its parts.
void summarize(Plan& plan);

}  // namespace canzona::plan
