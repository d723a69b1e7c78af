#include "canzona/plan/storage/storage_basis.h"

#include <gmock/gmock.h>

namespace canzona::plan::storage_loads_test {
namespace {

using ::testing::ElementsAre;

const MatrixCost kCost{Ticks(10), Ticks(70)};

TEST(StepKinds, AreThoseOfTheOnlyRuleThatRefreshes) {
  const StepKinds kinds({{1, 1}, {5, 2}, {5, 2}});
  EXPECT_EQ(kinds.period(), 5);
  EXPECT_THAT(kinds.steps(), ElementsAre(3, 1, 1));
  EXPECT_THAT(kinds.load(kCost, 1, 1), ElementsAre(10, 10, 80));
  EXPECT_THAT(kinds.load(kCost, 0, 0), ElementsAre(80, 80, 80));
  EXPECT_EQ(kinds.period_load(kCost, 2, 0), 5 * 10 + 70);
}

// Period 2 refreshes phase 0 at steps 0, 2, 4, period 3 phase 0 at steps 0, 3.
TEST(StepKinds, OfTwoPeriodsAreCountedOverTheCommonOne) {
  const StepKinds kinds({{2, 1}, {3, 1}});
  EXPECT_EQ(kinds.period(), 6);
  EXPECT_EQ(kinds.steps().size(), 4u);
  EXPECT_EQ(kinds.period_load(kCost, 0, 0), 6 * 10 + 3 * 70);
  EXPECT_EQ(kinds.period_load(kCost, 1, 0), 6 * 10 + 2 * 70);
  int64_t both = 0;
  for (size_t k = 0; k < 4; ++k)
    both += kinds.load(kCost, 0, 0)[k] == 80 && kinds.load(kCost, 1, 0)[k] == 80
                ? kinds.steps()[k]
                : 0;
  EXPECT_EQ(both, 1);
}

TEST(StepKinds, WithoutAShortCommonPeriodRefreshesAreSpread) {
  const StepKinds kinds({{9973, 1}, {7, 1}});
  EXPECT_EQ(kinds.period(), 1);
  EXPECT_THAT(kinds.load(kCost, 1, 0), ElementsAre(20));
  EXPECT_THAT(kinds.load(kCost, 0, 0), ElementsAre(11));
}

TEST(StepKinds, OfManyPhasesAreSpreadAsWell) {
  const StepKinds kinds({{1000, 1000}});
  EXPECT_THAT(kinds.steps(), ElementsAre(1));
  EXPECT_THAT(kinds.load(kCost, 0, 7), ElementsAre(11));
}

}  // namespace
}  // namespace canzona::plan::storage_loads_test
