#include "canzona/plan/predict/loads.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::loads_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<int32_t> computing_ranks(const Plan& plan, size_t m) {
  std::vector<int32_t> ranks;
  each_computing_rank(plan.parts[0], m, [&](int32_t r) { ranks.push_back(r); });
  return ranks;
}

// One 4x4 matrix on dp = 2, tp = 3, at home 1.
Plan one_matrix(std::vector<int32_t> owners) {
  Plan plan;
  plan.model = squares({4});
  plan.mesh = parse_mesh("dp=2,tp=3");
  plan.rule = "muon";
  plan.matrices = split_into_matrices(plan.model, {});
  plan.costs = {{Ticks(7), Ticks(0)}};
  add_parts(plan);
  plan.parts[0].buffers = {{0, -1, 2}};
  plan.parts[0].buckets = {{0, {0}, 1, {0, 0, 16}, {0, 0, 0}}};
  plan.parts[0].home = {1};
  plan.parts[0].owners.push_back(owners);
  plan.parts[0].micro_group = {0};
  derive(plan);
  return plan;
}

TEST(Loads, AnOwnerComputes) {
  EXPECT_THAT(computing_ranks(one_matrix({2}), 0), ElementsAre(5));
}

TEST(Loads, ATeamComputesTogether) {
  EXPECT_THAT(computing_ranks(one_matrix({0, 2}), 0), ElementsAre(3, 5));
}

TEST(Loads, WithoutOwnerAllRanksOfTheHomeCompute) {
  EXPECT_THAT(computing_ranks(one_matrix({}), 0), ElementsAre(3, 4, 5));
}

// Updates that every home repeats are counted at the first home of each ep
// coordinate; every other rank looks there.
TEST(Loads, RepeatedUpdatesAreCountedOncePerExpertCoordinate) {
  const Plan plan = plan_of(toy_moe(1, 2), "dp=2,cp=2,tp=2,ep=2",
                            with_strategy("replicated"));
  std::set<int32_t> counted;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const Tensor& t =
        plan.model.tensors[static_cast<size_t>(plan.matrices[m].tensor)];
    const auto ranks = computing_ranks(plan, m);
    // Homes (d, e, c) are 0..7; those with d = c = 0 are 0 (e 0) and 2 (e 1).
    if (t.expert < 0) {
      EXPECT_THAT(ranks, UnorderedElementsAre(0, 1, 4, 5)) << t.name;
    } else {
      EXPECT_THAT(ranks, t.expert == 0 ? UnorderedElementsAre(0, 1)
                                       : UnorderedElementsAre(4, 5))
          << t.name;
    }
    counted.insert(ranks.begin(), ranks.end());
  }
  for (int32_t r = 0; r < plan.mesh.world(); ++r) {
    EXPECT_TRUE(counted.contains(counted_rank(plan.mesh, r))) << r;
  }
  EXPECT_EQ(counted_rank(plan.mesh, 15), 5);  // d 1, e 1, c 1, t 1
  EXPECT_EQ(counted_rank(plan.mesh, 10), 0);  // d 1, e 0, c 1, t 0
}

TEST(Loads, CountedRanksStayInTheirStage) {
  const Mesh mesh = parse_mesh("dp=2,tp=2,pp=2");
  EXPECT_EQ(counted_rank(mesh, 7), 5);
  EXPECT_EQ(counted_rank(mesh, 3), 1);
}

TEST(Loads, StepsOfAPeriodByKind) {
  EXPECT_THAT(steps_of(1, 1), ElementsAre(1));
  EXPECT_THAT(steps_of(10, 1), ElementsAre(9, 1));
  EXPECT_THAT(steps_of(10, 3), ElementsAre(7, 1, 1, 1));
  EXPECT_THAT(steps_of(2, 2), ElementsAre(0, 1, 1));
}

TEST(Loads, OfAMatrixByKindOfStep) {
  const MatrixCost cost{Ticks(5), Ticks(70)};
  EXPECT_THAT(load_by_step(cost, 0, 1, 1), ElementsAre(75));
  EXPECT_THAT(load_by_step(cost, 0, 10, 1), ElementsAre(5, 75));
  EXPECT_THAT(load_by_step(cost, 1, 10, 3), ElementsAre(5, 5, 75, 5));
}

TEST(MakespanBound, IsTheLargestMatrixOrTheMean) {
  const auto bound = [](const Model& model, const char* mesh) {
    const Plan plan = plan_of(model, mesh);
    return makespan_bound(plan, plan.summary.makespan).value();
  };
  const int64_t cost = 20 * 4 * 4 * 4;  // of a 4x4 matrix
  EXPECT_EQ(bound(squares({4}), "dp=512"), cost);
  EXPECT_EQ(bound(squares({4, 4, 4, 4}), "dp=2"), 2 * cost);
  EXPECT_EQ(bound(squares({4, 4, 4}), "dp=2"), 2 * cost);  // two of three meet
  EXPECT_EQ(bound(Model{}, "dp=2"), 0);
}

// Stages do not share ranks: the fuller one decides.
TEST(MakespanBound, IsThatOfTheFullestStage) {
  Model model = squares({4, 4, 4, 4, 4, 4});
  for (size_t t = 0; t < 6; ++t) model.tensors[t].layer = t < 1 ? 0 : 1;
  model.num_layers = 2;
  const Plan plan = plan_of(model, "dp=1,pp=2");
  EXPECT_EQ(makespan_bound(plan, plan.summary.makespan), Ticks(5 * 1280));
}

TEST(MakespanBound, IsNeverAboveAnyPlan) {
  Random random(3);
  for (int instance = 0; instance < 20; ++instance) {
    const Model model = random_matrices(random, random.between(0, 12), 9, 2);
    for (const std::string& strategy : strategy_names()) {
      const Plan plan = plan_of(model, "dp=3,tp=2", with_strategy(strategy));
      EXPECT_LE(makespan_bound(plan, plan.summary.makespan),
                plan.summary.makespan);
    }
  }
}

}  // namespace
}  // namespace canzona::plan::loads_test
