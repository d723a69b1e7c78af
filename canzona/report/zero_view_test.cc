#include "canzona/report/zero_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/report/explain.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::zero_view_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ReportPlan cut(const std::string& zero, const std::string& mesh = "dp=4") {
  return shown_plan({.mesh = mesh, .zero = zero, .ranks_per_node = 2});
}

const char* const kSizes[] = {"none",   "zero2",         "zero3",
                              "hier:2", "replica:2",     "z1=4,z2=4,z3=2",
                              "z3=2",   "z1=2,z2=1,z3=2"};

int64_t exchanged(const PurposeBytes& bytes) {
  return of(bytes, Purpose::kGatherMatrices).sent() +
         of(bytes, Purpose::kScatterMatrices).sent();
}

int64_t sent_in_schedule(const Plan& plan, int32_t rank,
                         int64_t micro_batches) {
  int64_t sum = 0;
  for (const ScheduleEntry& entry :
       iteration_of(plan, rank, usual_calls(plan, 0, micro_batches)))
    sum += entry.bytes.sent();
  return sum;
}

// The same bytes by three ways: by module, by collective, and by the entries of
// the schedule.
TEST(ZeroBytes, AddUpToTheModules) {
  for (const char* zero : kSizes) {
    const ReportPlan shown = cut(zero);
    for (int32_t r = 0; r < 4; ++r) {
      const PurposeBytes bytes =
          zero_bytes(shown.plan, shown.ranks[static_cast<size_t>(r)], r);
      int64_t reduce = 0, publish = 0, scatter = 0, gather = 0;
      for (const PurposeBytes& m : module_bytes(shown.plan, r)) {
        reduce += of(m, Purpose::kSum).sent();
        publish += of(m, Purpose::kPublish).sent();
        scatter += of(m, Purpose::kScatterModule).sent();
        gather += of(m, Purpose::kGatherModule).sent();
      }
      EXPECT_EQ(of(bytes, Purpose::kSum).sent(), reduce) << zero;
      EXPECT_EQ(of(bytes, Purpose::kPublish).sent(), publish) << zero;
      EXPECT_EQ(of(bytes, Purpose::kScatterModule).sent(), scatter) << zero;
      // No embedding: every module is used twice.
      EXPECT_EQ(of(bytes, Purpose::kGatherModule).sent(), 2 * gather) << zero;
      EXPECT_EQ(sent_in_schedule(shown.plan, r, 3),
                3 * (2 * gather + scatter) + reduce + publish +
                    of(bytes, Purpose::kSumReplicas).sent() + exchanged(bytes))
          << zero;
    }
  }
}

TEST(ZeroBytes, GroupsCrossNodes) {
  const Plan plan = cut("hier:2").plan;
  EXPECT_FALSE(crosses_nodes(plan.parts[0], 2));
  EXPECT_TRUE(crosses_nodes(plan.parts[0], 4));
  EXPECT_FALSE(crosses_nodes(plan.parts[0], 1));
  EXPECT_TRUE(crosses_nodes(cut("hier:2", "dp=2,tp=2").plan.parts[0], 2));
}

TEST(ZeroView, SaysNothingOfPlainPlans) {
  const ReportPlan plain = cut("zero1");
  EXPECT_EQ(print_text(zero_view(plain), Ink()), "");
  EXPECT_FALSE(parse_json(to_json(plan_view(plain)), {}).contains("zero"));
  EXPECT_THAT(print_text(plan_view(plain), Ink()), Not(HasSubstr("pools")));
}

TEST(ZeroView, ShowsGroupsPoolsAndReplicas) {
  const std::string text = print_text(plan_view(cut("replica:2")), Ink());
  EXPECT_THAT(text, HasSubstr("z1=2,z2=2,z3=2: states over 2"));
  EXPECT_THAT(text, HasSubstr("z3 groups of 2 lie inside a node"));
  EXPECT_THAT(text, HasSubstr("the step is computed 2 times"));
  EXPECT_THAT(text, HasSubstr("sum over replicas"));
  EXPECT_THAT(text, HasSubstr("pools"));
  EXPECT_THAT(print_text(zero_view(cut("zero3")), Ink()),
              HasSubstr("cross nodes"));
}

TEST(ZeroView, SaysWhereModulesAreSentOncePerNode) {
  ReportPlan shown = cut("zero3");
  EXPECT_THAT(print_text(zero_view(shown), Ink()), Not(HasSubstr("once")));
  shown.plan.options.zero.reach = Reach::kPerNode;
  shown.plan.parts[0].options.zero.reach = Reach::kPerNode;
  EXPECT_THAT(print_text(zero_view(shown), Ink()),
              HasSubstr("z3 groups of 4 cross nodes, sending once to each"));
  const Json json = parse_json(to_json(plan_view(shown)), {});
  EXPECT_EQ(json.at("zero").at("collectives"), "node");
}

// Pairs of six ranks are part of the tree, groups of three are not.
TEST(ZeroView, SaysWhichSumsHaveOtherBits) {
  const auto json = [](const ReportPlan& shown, const char* member) {
    return parse_json(to_json(plan_view(shown)), {}).at("zero").at(member);
  };
  const ReportPlan threes = cut("hier:3", "dp=6");
  EXPECT_THAT(print_text(zero_view(threes), Ink()),
              HasSubstr("added in groups of 3"));
  EXPECT_EQ(json(threes, "keeps_bits"), false);
  EXPECT_EQ(json(threes, "replicas_at_once"), false);
  for (const char* kept : {"hier:2", "zero3", "replica:2"}) {
    const ReportPlan shown = cut(kept, "dp=6");
    EXPECT_THAT(print_text(zero_view(shown), Ink()), Not(HasSubstr("sums")))
        << kept;
    EXPECT_EQ(json(shown, "keeps_bits"), true) << kept;
    EXPECT_EQ(json(shown, "replicas_at_once"), false) << kept;
  }
  const ReportPlan states = cut("z1=3,z2=1,z3=1", "dp=6");
  EXPECT_THAT(print_text(zero_view(states), Ink()),
              HasSubstr("2 replicas are added at"));
  EXPECT_EQ(json(states, "keeps_bits"), true);
  EXPECT_EQ(json(states, "replicas_at_once"), true);
}

TEST(ZeroView, TheJsonHasEveryOperation) {
  const Json json = parse_json(to_json(plan_view(cut("replica:2"))), {});
  const Json& zero = json.at("zero");
  EXPECT_EQ(zero.at("sizes").at("z1"), 2);
  EXPECT_EQ(zero.at("replicas"), 2);
  EXPECT_EQ(zero.at("z3_crosses_nodes"), false);
  for (const char* name : {"gather", "scatter", "exchange", "replicas"})
    EXPECT_TRUE(zero.at("operations").contains(name)) << name;
  EXPECT_TRUE(json.at("ranks").at(0).at("memory").contains("pools"));
  EXPECT_EQ(zero.at("described").at(0).at("facts").at(0).at(0), "sizes");
  EXPECT_EQ(zero.at("among_heading"), "among");
}

// Owners are ranks of the world, in every replica, and computes() agrees.
TEST(ZeroView, OwnersAreRanksOfTheWorld) {
  for (const char* zero : kSizes)
    for (const char* mesh : {"dp=4", "dp=4,tp=2", "dp=4,pp=3"}) {
      const ReportPlan shown = cut(zero, mesh);
      const Plan& plan = shown.plan;
      std::vector<int32_t> computed(shown.ranks.size(), 0);
      for (int32_t m = 0; m < std::ssize(plan.matrices); ++m) {
        const std::vector<int32_t> owners = owner_ranks(plan.parts[0], m);
        EXPECT_EQ(std::ssize(owners), plan.parts[0].num_replicas());
        for (int32_t r = 0; r < plan.mesh.world(); ++r) {
          const bool owns = std::ranges::find(owners, r) != owners.end();
          EXPECT_EQ(owns, computes(plan.parts[0], r, m)) << zero << " " << mesh;
          computed[static_cast<size_t>(r)] += owns ? 1 : 0;
        }
      }
      for (size_t r = 0; r < computed.size(); ++r)
        EXPECT_EQ(computed[r], shown.ranks[r].num_matrices)
            << zero << " " << mesh << ", rank " << r;
    }
}

// Replicas move the same: of one of them the bytes are those predicted.
TEST(ZeroView, MovesAddUpToThePredictedBytes) {
  for (const char* zero : kSizes)
    for (const char* mesh : {"dp=4", "dp=4,tp=2"}) {
      const ReportPlan shown = cut(zero, mesh);
      int64_t moved = 0, sent = 0;
      for (int32_t m = 0; m < std::ssize(shown.plan.matrices); ++m) {
        const Moves moves = moves_of(shown.plan, m);
        moved += moves.gather.value() + moves.scatter.value();
      }
      for (size_t r = 0; r < shown.ranks.size(); ++r)
        sent += exchanged(
            zero_bytes(shown.plan, shown.ranks[r], static_cast<int32_t>(r)));
      EXPECT_EQ(moved * shown.plan.parts[0].num_replicas(), sent)
          << zero << " " << mesh;
    }
}

TEST(ZeroView, EverythingCanBeExplained) {
  for (const char* zero : kSizes) {
    const ReportPlan shown = cut(zero, "dp=4,tp=2");
    EXPECT_THAT(print_text(explain_rank(shown, 7), Ink()),
                HasSubstr("Rank 7 of 8"));
    const Found found = find_by_name(shown.plan, "layers.1.up");
    EXPECT_THAT(print_text(explain_matrices(shown, found), Ink()),
                HasSubstr("What moves"));
  }
}

}  // namespace
}  // namespace canzona::report::zero_view_test
