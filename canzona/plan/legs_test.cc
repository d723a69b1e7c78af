#include "canzona/plan/legs.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::legs_test {
namespace {

PlanOptions once_per_node(int32_t ranks_per_node, ZeroSizes sizes = {}) {
  PlanOptions options;
  options.ranks_per_node = ranks_per_node;
  options.zero.sizes = sizes;
  options.zero.reach = Reach::kPerNode;
  return options;
}

PlanPart plan_on(const Mesh& mesh, const PlanOptions& options) {
  PlanPart plan;
  plan.mesh = mesh;
  plan.options = options;
  return plan;
}

TEST(Legs, SplitAGroupIntoItsNodes) {
  const Mesh mesh = parse_mesh("dp=16");
  const PlanOptions options = once_per_node(4);
  EXPECT_EQ(module_legs(plan_on(mesh, options), 5, 16), (Legs{4, 4}));
  EXPECT_EQ(module_legs(plan_on(mesh, options), 5, 8), (Legs{4, 2}));
  PlanOptions direct = options;
  direct.zero.reach = Reach::kDirect;
  EXPECT_EQ(module_legs(plan_on(mesh, direct), 5, 16), (Legs{16, 1}));
}

TEST(Legs, AreOneWhereNothingIsSaved) {
  const Mesh mesh = parse_mesh("dp=16");
  EXPECT_EQ(module_legs(plan_on(mesh, once_per_node(4)), 5, 4), (Legs{4, 1}));
  EXPECT_EQ(module_legs(plan_on(mesh, once_per_node(4)), 5, 2), (Legs{2, 1}));
  EXPECT_EQ(module_legs(plan_on(mesh, once_per_node(1)), 5, 16), (Legs{16, 1}));
}

TEST(Legs, CountHomesWhereRanksShareThem) {
  const Mesh mesh = parse_mesh("dp=8,tp=2,pp=2");
  for (const int32_t rank : {0, 7, 16, 31}) {
    EXPECT_EQ(module_legs(plan_on(mesh, once_per_node(4)), rank, 8),
              (Legs{2, 4}));
    EXPECT_EQ(module_legs(plan_on(mesh, once_per_node(2)), rank, 8),
              (Legs{8, 1}));
  }
}

TEST(Legs, NeedEquallyManyRanksOnEveryNode) {
  const Mesh mesh = parse_mesh("dp=12");
  check_reach(plan_on(mesh, once_per_node(4, {12, 12, 4})));
  check_reach(plan_on(mesh, once_per_node(3, {12, 3, 12})));
  // One group inside a node, one with a rank on each of two.
  check_reach(plan_on(mesh, once_per_node(3, {12, 2, 2})));
  EXPECT_THROW(check_reach(plan_on(mesh, once_per_node(8, {12, 12, 12}))),
               UsageError);
  EXPECT_THROW(check_reach(plan_on(mesh, once_per_node(4, {12, 3, 3}))),
               UsageError);
  EXPECT_THROW(check_reach(plan_on(mesh, once_per_node(5, {12, 4, 1}))),
               UsageError);
  PlanOptions direct = once_per_node(5, {12, 4, 1});
  direct.zero.reach = Reach::kDirect;
  check_reach(plan_on(mesh, direct));
}

// A stage that begins inside a node.
TEST(Legs, LookAtEveryStage) {
  const Mesh mesh = parse_mesh("dp=6,pp=2");
  check_reach(plan_on(mesh, once_per_node(3, {6, 6, 6})));
  check_reach(plan_on(mesh, once_per_node(2, {6, 6, 6})));
  check_reach(plan_on(mesh, once_per_node(6, {6, 6, 6})));
  EXPECT_THROW(check_reach(plan_on(mesh, once_per_node(4, {6, 6, 6}))),
               UsageError);
  check_reach(plan_on(mesh, once_per_node(4, {6, 2, 2})));
}

TEST(Legs, ARefusalNamesTheGroupAndTheWayOut) {
  try {
    check_reach(plan_on(parse_mesh("dp=12"), once_per_node(8, {12, 4, 12})));
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--collectives node: the group of z3 = 12 data-parallel ranks "
                 "from rank 0 to 11 has not equally many ranks on each of its "
                 "nodes of 8; choose another size, or --collectives direct");
  }
}

// dp=4, ep=2 on nodes of four: of an ep coordinate's four homes two are on
// each.
TEST(Legs, OfExpertsGoByTheirOwnRanks) {
  PlanPart experts = plan_on(parse_mesh("dp=4"), once_per_node(4, {4, 4, 4}));
  EXPECT_EQ(module_legs(experts, 1, 4), (Legs{4, 1}));
  experts.ep = 2;
  experts.e = 1;
  EXPECT_EQ(module_legs(experts, 1, 4), (Legs{2, 2}));
  check_reach(experts);
  experts.options.ranks_per_node = 3;
  EXPECT_THROW(check_reach(experts), UsageError);
}

TEST(Reach, HasWords) {
  for (const Reach reach : {Reach::kDirect, Reach::kPerNode})
    EXPECT_EQ(parse_reach(to_string(reach)), reach);
  EXPECT_THROW(parse_reach("nodes"), UsageError);
}

}  // namespace
}  // namespace canzona::legs_test
