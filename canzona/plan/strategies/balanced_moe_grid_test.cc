#include "canzona/plan/strategies/test_grid.h"

namespace canzona::plan::balanced_moe_grid_test {
namespace {

// Tens of thousands of matrices.
const std::vector<std::string> kPresets{"qwen3-30b-a3b", "qwen3-235b-a22b"};

TEST(BalancedMoeGrid, IsNearTheOptimumWithoutABoundOnBytes) {
  const std::vector<GridCell> cells = optima_of(kPresets);
  ASSERT_EQ(cells.size(), 48U);
  for (const GridCell& cell : cells) expect_near_optimum(cell);
}

TEST(BalancedMoeGrid, IsNearTheOptimumWithTheDefaultBoundOnBytes) {
  for (const GridCell& cell : optima_of(kPresets)) {
    expect_near_optimum_with_bytes_bounded(cell);
  }
}

TEST(BalancedMoeGrid, IsNeverWorseThanLongestFirst) {
  for (const GridCell& cell : grid_of(kPresets)) {
    expect_no_worse_than_longest_first(cell);
  }
}

TEST(BalancedMoeGrid, IsNearTheBoundWithNineMatricesPerRank) {
  int cells = 0;
  for (const GridCell& cell : grid_of(kPresets)) {
    if (!has_nine_matrices_per_rank(cell)) continue;
    expect_near_bound(cell, 1);
    expect_near_bound(cell, {});
    ++cells;
  }
  EXPECT_EQ(cells, 96);
}

TEST(BalancedMoeGrid, LevelsMemoryWhereAdamwTensorsSuffice) {
  int cells = 0;
  for (const GridCell& cell : grid_of(kPresets)) {
    cells += expect_level_memory(cell);
  }
  EXPECT_EQ(cells, 96);
}

}  // namespace
}  // namespace canzona::plan::balanced_moe_grid_test
