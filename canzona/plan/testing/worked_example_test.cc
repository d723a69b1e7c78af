// The example by which the documentation explains owners and homes.
#include <gmock/gmock.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::worked_example_test {
namespace {

using ::testing::ElementsAre;

// dp = 2, tp = 2, ranks (d, t): A is owned by (0, 0), B by (1, 0), C by (1, 1).
class WorkedExample : public ::testing::Test {
 protected:
  WorkedExample() {
    plan_.model = model_of({matrix_tensor("A", 4, 3, Cut::kRows),
                            matrix_tensor("B", 6, 3, Cut::kRows),
                            matrix_tensor("C", 3, 8, Cut::kColumns)});
    plan_.mesh = parse_mesh("dp=2,tp=2");
    plan_.rule = "muon";
    plan_.matrices = split_into_matrices(plan_.model, {});
    plan_.costs.resize(3);
    add_parts(plan_);
    plan_.parts[0].buffers = {{0, -1, 2}};
    // In plane t the bucket is [A_t | B_t C_t]: 6, then 9 and 12 elements.
    plan_.parts[0].buckets = {{0, {0, 1, 2}, 3, {0, 6, 27}, {0, 0, 0}}};
    plan_.parts[0].home = {0, 1, 1};
    for (int32_t owner : {0, 0, 1}) plan_.parts[0].owners.push_back(owner);
    plan_.parts[0].micro_group = {0, 0, 0};
    derive(plan_);
    ranks_ = predict(plan_);
  }

  // Bytes of one collective that every rank sends and receives.
  std::vector<int64_t> sent(Collective c) const {
    std::vector<int64_t> out;
    for (const RankCost& rank : ranks_) {
      out.push_back(rank.wire[static_cast<size_t>(c)].sent());
    }
    return out;
  }
  std::vector<int64_t> received(Collective c) const {
    std::vector<int64_t> out;
    for (const RankCost& rank : ranks_) {
      out.push_back(rank.wire[static_cast<size_t>(c)].received());
    }
    return out;
  }

  Plan plan_;
  std::vector<RankCost> ranks_;  // (0,0), (0,1), (1,0), (1,1)
};

// A_1 to (0,0), B_1 to (1,0), C_0 to (1,1).
TEST_F(WorkedExample, Gathers) {
  EXPECT_THAT(sent(Collective::kGather), ElementsAre(0, 24, 48, 36));
  EXPECT_THAT(received(Collective::kGather), ElementsAre(24, 0, 36, 48));
}

TEST_F(WorkedExample, ScattersBackTheSameWay) {
  EXPECT_EQ(sent(Collective::kScatter), received(Collective::kGather));
  EXPECT_EQ(received(Collective::kScatter), sent(Collective::kGather));
}

// Reduce-scatter leaves A_t on (0,t), B_t and C_t on (1,t).
TEST_F(WorkedExample, ReducesToHomes) {
  EXPECT_THAT(sent(Collective::kReduceScatter), ElementsAre(84, 84, 24, 24));
  EXPECT_THAT(received(Collective::kReduceScatter),
              ElementsAre(24, 24, 84, 84));
  EXPECT_THAT(sent(Collective::kAllGather), ElementsAre(12, 12, 42, 42));
}

TEST_F(WorkedExample, RoutesAreTheHalves) {
  EXPECT_THAT(
      routes_of(plan_.parts[0], 0),
      ElementsAre(Route{{0, 2, 0, 3}, 0, 0}, Route{{2, 2, 0, 3}, 1, 0}));
  EXPECT_THAT(
      routes_of(plan_.parts[0], 1),
      ElementsAre(Route{{0, 3, 0, 3}, 0, 0}, Route{{3, 3, 0, 3}, 1, 0}));
  EXPECT_THAT(
      routes_of(plan_.parts[0], 2),
      ElementsAre(Route{{0, 3, 0, 4}, 0, 0}, Route{{0, 3, 4, 4}, 1, 0}));
}

}  // namespace
}  // namespace canzona::plan::worked_example_test
