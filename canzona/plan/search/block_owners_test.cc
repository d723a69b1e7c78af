// Owners of blocks in whole plans.
#include "canzona/plan/search/owners.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/plan/search/teams.h"
#include "canzona/plan/testing/test_random.h"
#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::block_owners_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

RuleChoice shampoo(int64_t side = 64, int phases = 1) {
  return {"shampoo",
          {{"max_preconditioner_dim", std::to_string(side)},
           {"phases", std::to_string(phases)}}};
}

TEST(MatrixBlocks, AreRectanglesWithTheirShareOfTheCost) {
  const auto rule = make_rule_facts("shampoo", shampoo(4).options);
  const MatrixBlocks blocks(*rule, {10, 7});
  ASSERT_EQ(blocks.count(), 6);
  EXPECT_EQ(blocks.at(0), (Rectangle{0, 4, 0, 4}));
  EXPECT_EQ(blocks.at(1), (Rectangle{0, 4, 4, 3}));
  EXPECT_EQ(blocks.at(4), (Rectangle{8, 2, 0, 4}));
  EXPECT_EQ(blocks.at(5), (Rectangle{8, 2, 4, 3}));
  // A tick is a flop here: the shares are exact.
  const RuleWork work = rule->work({10, 7});
  const MatrixCost whole{Ticks(work.every_step.value()),
                         Ticks(work.refresh.value())};
  MatrixCost sum;
  for (int32_t b = 0; b < blocks.count(); ++b) {
    const MatrixCost own = blocks.cost(whole, b);
    EXPECT_EQ(own.every_step.value(),
              rule->work(blocks.shape_of(b)).every_step.value());
    EXPECT_EQ(own, blocks.least_cost(whole, b));
    sum.every_step += own.every_step;
    sum.refresh += own.refresh;
  }
  EXPECT_EQ(sum, whole);
  EXPECT_FALSE(MatrixBlocks(*rule, {4, 4}).fall_apart());
  // More than anybody is told apart.
  EXPECT_FALSE(MatrixBlocks(*rule, {4096, 4096}).fall_apart());
  const auto muon = make_rule_facts("muon", {});
  EXPECT_FALSE(MatrixBlocks(*muon, {4096, 8192}).fall_apart());
}

// One tall matrix of 32 blocks, a wide one of 16 and a small one on four ranks.
TEST(BlockOwners, LevelWhatOneRankWouldBeSlowWith) {
  const Model model = wide_and_small(1);
  const Plan whole = plan_of(model, "tp=4", {}, shampoo());
  const Plan shared = plan_of(model, "tp=4", with_teams(), shampoo());
  EXPECT_EQ(count_teams(whole), 0u);
  EXPECT_EQ(count_teams(shared), 2u);
  EXPECT_LT(shared.summary.makespan.value(),
            whole.summary.makespan.value() * 5 / 10);
  EXPECT_GE(shared.summary.makespan, shared.summary.team_bound);
  EXPECT_LT(shared.summary.makespan.value(),
            shared.summary.team_bound.value() * 11 / 10);
  EXPECT_EQ(shared.summary.bound, whole.summary.bound);
  EXPECT_EQ(shared.summary.mean, whole.summary.mean);
  EXPECT_EQ(shared.parts[0].home, whole.parts[0].home);
  EXPECT_EQ(shared.parts[0].buckets, whole.parts[0].buckets);
  EXPECT_THAT(validate(shared), IsEmpty());
  // Neighbours along the cut go to the same rank.
  const auto owners =
      shared.parts[0].owners[matrix_of(shared, "layers.0.tall")];
  EXPECT_EQ(owners.size(), 32u);
  EXPECT_TRUE(std::is_sorted(owners.begin(), owners.end()));
}

TEST(BlockOwners, AreNoMoreRanksThanAsked) {
  for (const int32_t most : {2, 4, 8}) {
    const Plan plan =
        plan_of(wide_and_small(1), "tp=8", with_teams(most), shampoo());
    size_t largest = 1;
    for (size_t m = 0; m < plan.parts[0].owners.size(); ++m)
      largest = std::max(largest, distinct(plan.parts[0].owners[m]).size());
    EXPECT_EQ(largest, static_cast<size_t>(most));
    EXPECT_THAT(validate(plan), IsEmpty());
  }
  EXPECT_THAT(
      [] { plan_of(wide_and_small(1), "tp=2", with_teams(4), shampoo()); },
      ThrowsMessage<UsageError>(HasSubstr("homes on tp=2 have 2")));
}

// Unlike a team's members, owners of blocks exchange nothing with each other.
TEST(BlockOwners, MayBeOnSeveralNodes) {
  PlanOptions options = with_teams();
  options.ranks_per_node = 1;
  options.links.inter_bytes_per_second = 1e18;
  const Plan plan = plan_of(wide_and_small(1), "tp=4", options, shampoo());
  EXPECT_GT(count_teams(plan), 0u);
  EXPECT_THAT(validate(plan), IsEmpty());
}

TEST(BlockOwners, AreNotTakenWhereTheyDoNotPay) {
  const Plan level =
      plan_of(wide_and_small(4), "tp=4", with_teams(), shampoo());
  EXPECT_EQ(count_teams(level), 0u);
  EXPECT_EQ(why_no_teams(level, *make_rule_facts("shampoo", {})), "");
  const RuleChoice soap{"soap", {{"max_preconditioner_dim", "64"}}};
  EXPECT_EQ(count_teams(plan_of(wide_and_small(1), "tp=4", with_teams(), soap)),
            0u);
}

TEST(BlockOwners, OffIsAsEver) {
  const Plan plan = plan_of(wide_and_small(1), "tp=4", {}, shampoo());
  const std::string text = plan_to_json(plan);
  EXPECT_EQ(text.find("team"), std::string::npos);
}

// On random models and meshes: sound, never below the bound, never worse than
// whole owners, read back equal, the same every time.
TEST(BlockOwners, HoldOnManyMeshes) {
  Random random(23);
  int with = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Mesh mesh = random_mesh(random);
    Model model = random_model(random, mesh);
    for (Tensor& tensor : model.tensors)
      if (tensor.matrix_rule)
        tensor.shape[0] *= random.pick<int64_t>({1, 2, 8, 32});
    const RuleChoice rule =
        shampoo(random.pick<int64_t>({3, 8, 16}), random.small(1, 3));
    const Plan whole = plan_of(model, to_string(mesh), {}, rule);
    const Plan plan = plan_of(model, to_string(mesh), with_teams(), rule);
    SCOPED_TRACE(cat(trial, " ", to_string(mesh)));
    with += count_teams(plan) > 0;
    EXPECT_THAT(validate(plan), IsEmpty());
    EXPECT_GE(plan.summary.makespan, plan.summary.team_bound);
    EXPECT_LE(plan.summary.team_bound, plan.summary.bound);
    EXPECT_LE(plan.summary.makespan, whole.summary.makespan);
    EXPECT_EQ(plan.parts[0].home, whole.parts[0].home);
    const std::string text = plan_to_json(plan);
    EXPECT_EQ(plan_to_json(plan_from_json(text, "test").plan), text);
    EXPECT_EQ(plan_to_json(plan_of(model, to_string(mesh), with_teams(), rule)),
              text);
  }
  EXPECT_GT(with, 10);
}

// What ranks have of a matrix adds up to all of it, each element once.
TEST(BlockOwners, ShareAllOfAMatrix) {
  const Plan plan =
      plan_of(wide_and_small(1), "tp=4", with_teams(), shampoo(48));
  TeamTable teams(plan.parts[0]);
  const size_t tall = matrix_of(plan, "layers.0.tall");
  ASSERT_TRUE(teams.is_in_blocks(tall));
  EXPECT_FALSE(teams.is_team(tall));
  EXPECT_EQ(teams.size(tall), 1);
  int64_t elements = 0;
  MatrixCost sum;
  for (const MatrixShare& share : teams.shares(tall)) {
    elements += share.elements();
    sum.every_step += share.cost.every_step;
    sum.refresh += share.cost.refresh;
  }
  EXPECT_EQ(elements, 2048 * 64);
  EXPECT_EQ(sum, plan.parts[0].costs[tall]);
}

TEST(ValidateBlocks, EachViolationIsFound) {
  const auto violations = [](const std::vector<int32_t>& owners,
                             int32_t teams = kTeamsAuto) {
    Plan plan =
        plan_of(wide_and_small(1), "tp=4", with_teams(teams), shampoo(512));
    replace_owners(plan, matrix_of(plan, "layers.0.tall"), owners);
    if (owners.size() == 4) summarize(plan);
    return validate(plan);
  };
  EXPECT_THAT(violations({2, 0, 3, 2}), IsEmpty());
  EXPECT_THAT(
      violations({1}),
      testing::Not(testing::Contains(HasSubstr("owners of its blocks"))));
  const std::string blocks =
      "matrix 'layers.0.tall': the owners of its blocks (";
  EXPECT_THAT(violations({0, 1, 2}),
              ElementsAre(blocks + "0, 1, 2) are 3, expected one for each of "
                                   "the 4 blocks"));
  EXPECT_THAT(violations({0, 1, 2, 3, 0}),
              ElementsAre(HasSubstr("are 5, expected one for each of")));
  EXPECT_THAT(violations({0, 1, 2, 3}, 2),
              ElementsAre(HasSubstr(
                  "are 4 ranks, more than teams=2 allows: at most 2")));
  Plan beyond = plan_of(wide_and_small(1), "tp=4", with_teams(), shampoo(512));
  replace_owners(beyond, matrix_of(beyond, "layers.0.tall"), {0, 1, 2, 4});
  EXPECT_THAT(validate(beyond),
              ElementsAre(HasSubstr("beyond the 4 tp ranks of its home")));
  Plan off = plan_of(wide_and_small(1), "tp=4", {}, shampoo(512));
  replace_owners(off, matrix_of(off, "layers.0.tall"), {0, 1, 2, 3});
  EXPECT_THAT(validate(off),
              ElementsAre(HasSubstr("than teams=off allows: at most 1")));
}

}  // namespace
}  // namespace canzona::plan::block_owners_test
