#include "canzona/plan/strategies/test_grid.h"

namespace canzona::plan::balanced_grid_test {
namespace {

const std::vector<std::string> kPresets{"qwen3-0.6b", "qwen3-1.7b",
                                        "qwen3-4b",   "qwen3-8b",
                                        "qwen3-14b",  "qwen3-32b"};

TEST(BalancedGrid, IsNearTheOptimumWithoutABoundOnBytes) {
  const std::vector<GridCell> cells = optima_of(kPresets);
  ASSERT_EQ(cells.size(), 312U);
  for (const GridCell& cell : cells) expect_near_optimum(cell);
}

TEST(BalancedGrid, IsNearTheOptimumWithTheDefaultBoundOnBytes) {
  for (const GridCell& cell : optima_of(kPresets)) {
    expect_near_optimum_with_bytes_bounded(cell);
  }
}

TEST(BalancedGrid, IsNeverWorseThanLongestFirst) {
  for (const GridCell& cell : grid_of(kPresets)) {
    expect_no_worse_than_longest_first(cell);
  }
}

TEST(BalancedGrid, IsNearTheBoundWithNineMatricesPerRank) {
  int cells = 0;
  for (const GridCell& cell : grid_of(kPresets)) {
    if (!has_nine_matrices_per_rank(cell)) continue;
    expect_near_bound(cell, 1);
    expect_near_bound(cell, {});
    ++cells;
  }
  EXPECT_EQ(cells, 52);
}

TEST(BalancedGrid, LevelsMemoryWhereAdamwTensorsSuffice) {
  int cells = 0;
  for (const GridCell& cell : grid_of(kPresets)) {
    cells += expect_level_memory(cell);
  }
  EXPECT_EQ(cells, 228);
}

PlanSummary summary_of(const GridCell& cell, int32_t teams) {
  PlanOptions options;
  options.teams = teams;
  return plan_of(grid_model(cell),
                 cat("dp=", cell.ranks / cell.tp, ",tp=", cell.tp), options,
                 {"muon",
                  {{"newton_schulz", cell.standard ? "standard" : "auto"},
                   {"strips", "8"}}})
      .summary;
}

double over_mean(const PlanSummary& s) {
  return static_cast<double>(s.makespan.value()) / s.mean;
}

TEST(BalancedGrid, TeamsAreNeverWorse) {
  int cells = 0, better = 0;
  for (const GridCell& cell : optima_of(kPresets)) {
    if (cell.tp != std::min(cell.ranks, 8)) continue;
    const PlanSummary whole = summary_of(cell, kTeamsOff);
    const PlanSummary teams = summary_of(cell, kTeamsAuto);
    EXPECT_LE(teams.makespan, whole.makespan) << to_string(cell);
    EXPECT_GE(teams.makespan, teams.team_bound) << to_string(cell);
    EXPECT_LE(teams.step_seconds_mean, whole.step_seconds_mean)
        << to_string(cell);
    better += teams.makespan < whole.makespan;
    ++cells;
  }
  EXPECT_EQ(cells, 78);
  EXPECT_GE(better, 5);
}

// Where whole owners need 1.77 to 3.42 times the mean.
TEST(BalancedGrid, TeamsLevelFusedModelsOn256Ranks) {
  for (const bool standard : {false, true}) {
    const auto reached = [&](const char* preset) {
      return over_mean(
          summary_of({preset, true, 256, 8, standard, 0}, kTeamsAuto));
    };
    EXPECT_LE(reached("qwen3-32b"), 1.10);
    EXPECT_LE(reached("qwen3-14b"), 1.35);
    EXPECT_LE(reached("qwen3-8b"), 1.35);
  }
}

}  // namespace
}  // namespace canzona::plan::balanced_grid_test
