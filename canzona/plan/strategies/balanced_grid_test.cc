#include "canzona/plan/strategies/test_grid.h"

namespace canzona::balanced_grid_test {
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

}  // namespace
}  // namespace canzona::balanced_grid_test
