#include "canzona/plan/micro_groups/modes.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "canzona/plan/search/teams.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::micro_groups_balanced_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

PlanOptions with_capacity(int64_t bytes, const std::string& strategy) {
  PlanOptions options = with_strategy(strategy, "balanced");
  options.capacity_bytes = bytes;
  return options;
}

// Eight equal matrices on two owners: four each, one in each of four rounds.
TEST(BalancedRounds, SpreadEveryOwnersMatricesOverTheSameRounds) {
  const Plan plan = plan_of(squares(std::vector<int64_t>(8, 3)), "tp=2");
  std::map<std::pair<int32_t, int32_t>, int> count;  // by owner and round
  for (size_t m = 0; m < 8; ++m) {
    ++count[{plan.parts[0].owners[m].front(), plan.parts[0].micro_group[m]}];
  }
  EXPECT_EQ(count.size(), 8U);
  for (const auto& [key, n] : count) {
    EXPECT_LT(key.second, kPipelineRounds);
    EXPECT_EQ(n, 1);
  }
}

// 28 equal matrices of an owner in eight rounds: two in the first and in the
// last, four in each of the others.
TEST(BalancedRounds, HaveHalfTheWorkAtBothEnds) {
  const Plan plan = plan_of(squares(std::vector<int64_t>(56, 3)), "tp=2");
  std::vector<int> count(kPipelineRounds, 0);
  for (size_t m = 0; m < 56; ++m)
    if (plan.parts[0].owners[m].front() == 0)
      ++count[static_cast<size_t>(plan.parts[0].micro_group[m])];
  EXPECT_THAT(count, ElementsAre(2, 4, 4, 4, 4, 4, 4, 2));
}

TEST(BalancedRounds, AreNoMoreThanMatrices) {
  const Plan plan = plan_of(squares({3, 3}), "tp=2");
  EXPECT_THAT(plan.parts[0].micro_group, Each(0));
}

// 100 bytes exceed the capacity of 70, 64 do not.
TEST(BalancedRounds, GiveAMatrixAboveTheCapacityItsOwnRound) {
  const Plan plan =
      plan_of(squares({4, 5, 4, 4, 4}), "tp=2", with_capacity(70, "balanced"));
  for (size_t m : {size_t{0}, size_t{2}, size_t{3}, size_t{4}}) {
    EXPECT_NE(plan.parts[0].micro_group[m], plan.parts[0].micro_group[1]);
  }
}

TEST(BalancedRounds, WithoutCapacityEveryMatrixIsItsOwn) {
  const Plan plan =
      plan_of(squares({2, 5, 3, 4}), "tp=2", with_capacity(0, "balanced"));
  const std::set<int32_t> rounds(plan.parts[0].micro_group.begin(),
                                 plan.parts[0].micro_group.end());
  EXPECT_THAT(rounds, ElementsAre(0, 1, 2, 3));
}

// If the strategy leaves owners open they are dealt over all rounds: 5 | 4, 3
// by elements (25 against 16 + 9).
TEST(BalancedRounds, DealOwnersWhereTheStrategyDoesNot) {
  const Plan plan = plan_of(squares({3, 5, 4}), "tp=2",
                            with_capacity(int64_t{1} << 30, "contiguous"));
  EXPECT_EQ(plan.parts[0].owners[0].front(), plan.parts[0].owners[2].front());
  EXPECT_NE(plan.parts[0].owners[0].front(), plan.parts[0].owners[1].front());
}

struct Round {
  std::map<int32_t, int64_t> bytes;  // by owner
  int matrices = 0;
  int64_t largest = 0;
};

// Checks for every home that rounds are numbered without gaps and that no owner
// exceeds the capacity unless a matrix is alone in its round.
void expect_within_capacity(const Plan& plan) {
  std::map<int32_t, std::map<int32_t, Round>> homes;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const Matrix& matrix = plan.matrices[m];
    const auto t = static_cast<size_t>(matrix.tensor);
    const bool cut = plan.model.tensors[t].cut != Cut::kNone;
    const int64_t bytes =
        matrix.rows * matrix.cols * 4 / (cut ? plan.mesh.tp : 1);
    ASSERT_EQ(plan.parts[0].owners[m].size(), 1U);
    Round& round = homes[plan.parts[0].home[t]][plan.parts[0].micro_group[m]];
    round.bytes[plan.parts[0].owners[m].front()] += bytes;
    round.largest = std::max(round.largest, bytes);
    ++round.matrices;
  }
  for (const auto& [home, rounds] : homes) {
    EXPECT_EQ(rounds.begin()->first, 0);
    EXPECT_EQ(rounds.rbegin()->first, static_cast<int32_t>(rounds.size()) - 1);
    for (const auto& [number, round] : rounds) {
      if (round.largest > plan.options.capacity_bytes) {
        EXPECT_EQ(round.matrices, 1) << "home " << home << ", round " << number;
        continue;
      }
      for (const auto& [owner, bytes] : round.bytes) {
        EXPECT_LE(bytes, plan.options.capacity_bytes) << "owner " << owner;
      }
    }
  }
}

TEST(BalancedRounds, NeverExceedTheCapacity) {
  Random random(61);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t dp = random.pick<int32_t>({1, 2, 4, 7});
    const int32_t tp = random.pick<int32_t>({2, 4, 7, 8});
    const Model model = random_matrices(random, random.between(1, 60), 30, tp);
    const std::string strategy = random.pick<std::string>(
        {"balanced", "contiguous", "megatron", "start_offset"});
    const Plan plan = plan_of(model, cat("dp=", dp, ",tp=", tp),
                              with_capacity(random.between(1, 6000), strategy));
    SCOPED_TRACE(cat("trial ", trial));
    expect_within_capacity(plan);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace canzona::plan::micro_groups_balanced_test
