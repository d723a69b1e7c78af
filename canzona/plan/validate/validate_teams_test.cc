// Teams in plans that others wrote.
#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::validate_teams_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

Plan team_plan(int32_t teams = kTeamsAuto) {
  PlanOptions options = with_teams(teams);
  options.ranks_per_node = 4;
  return plan_of(wide_and_small(1), "tp=8", options, rule_with_strips(4));
}

std::vector<std::string> with_owners(const std::vector<int32_t>& owners) {
  Plan plan = team_plan();
  replace_owners(plan, matrix_of(plan, "layers.0.tall"), owners);
  summarize(plan);
  return validate(plan);
}

TEST(ValidateTeams, ATeamOfAnotherSizeOrOrderIsSound) {
  EXPECT_THAT(validate(team_plan()), IsEmpty());
  EXPECT_THAT(with_owners({3, 1}), IsEmpty());
  EXPECT_THAT(with_owners({6, 4, 7, 5}), IsEmpty());
  EXPECT_THAT(with_owners({5}), IsEmpty());
}

// Everything that is wrong with one team is said at once.
TEST(ValidateTeams, AllViolationsAreListed) {
  Plan plan = team_plan();
  replace_owners(plan, matrix_of(plan, "layers.0.tall"), {1, 1, 5, 9, 2, 3});
  const std::string team =
      "matrix 'layers.0.tall': its team (1, 1, 5, 9, 2, 3)";
  EXPECT_THAT(
      validate(plan),
      ElementsAre("matrix 'layers.0.tall' has an owner beyond the 8 tp ranks "
                  "of its home",
                  team + " names rank 1 twice",
                  team + " has 6 ranks, expected 2, 4 or 8",
                  team + " is larger than the 4 strips of the matrix"));
}

TEST(ValidateTeams, EachViolationIsFound) {
  const auto violations = [](const std::vector<int32_t>& owners) {
    Plan plan = team_plan();
    replace_owners(plan, matrix_of(plan, "layers.0.tall"), owners);
    return validate(plan);
  };
  EXPECT_THAT(violations({1, 1}), Contains(HasSubstr("rank 1 twice")));
  EXPECT_THAT(violations({0, 8}), Contains(HasSubstr("beyond the 8 tp ranks")));
  EXPECT_THAT(violations({0, -1}), Contains(HasSubstr("beyond the 8 tp")));
  EXPECT_THAT(violations({0, 4}), Contains(HasSubstr("several nodes of 4")));
  EXPECT_THAT(violations({0, 1, 2}), Contains(HasSubstr("has 3 ranks")));
  EXPECT_THAT(violations({0, 1, 2, 3, 4, 5, 6, 7}),
              Contains(HasSubstr("larger than the 4 strips")));
  Plan small = team_plan();
  replace_owners(small, matrix_of(small, "layers.0.small"), {0, 1});
  EXPECT_THAT(validate(small), Contains(HasSubstr("than the one strip")));
  Plan two = team_plan(2);
  replace_owners(two, matrix_of(two, "layers.0.tall"), {0, 1, 2, 3});
  EXPECT_THAT(validate(two),
              Contains(HasSubstr("than teams=2 allows: at most 2")));
  Plan off = plan_of(wide_and_small(1), "tp=8", {}, rule_with_strips());
  replace_owners(off, matrix_of(off, "layers.0.tall"), {0, 1});
  EXPECT_THAT(validate(off),
              Contains(HasSubstr("than teams=off allows: at most 1")));
}

TEST(ValidateTeams, AMatrixHasOneHelper) {
  const auto violations = [](const std::vector<int32_t>& owners) {
    Plan plan =
        plan_of(two_squares(), "tp=8", with_teams(), soap_with_helpers());
    replace_owners(plan, matrix_of(plan, "square1"), owners);
    summarize(plan);
    return validate(plan);
  };
  EXPECT_THAT(violations({3, 1}), IsEmpty());
  EXPECT_THAT(violations({3}), IsEmpty());
  EXPECT_THAT(violations({3, 3}), Contains(HasSubstr("rank 3 twice")));
  EXPECT_THAT(
      violations({0, 1, 2, 3}),
      ElementsAre("matrix 'square1': its team (0, 1, 2, 3) has 4 ranks, "
                  "expected an owner and one helper"));
}

TEST(ValidateTeams, TheBoundIsCheckedToo) {
  Plan plan = team_plan();
  plan.summary.team_bound += Ticks(1);
  EXPECT_THAT(validate(plan), ElementsAre(HasSubstr("stored predictions")));
}

Json parsed() {
  return parse_json(plan_to_json(team_plan()), {.what = "plan"});
}

TEST(PlanJsonTeams, AreSaidWithTheirBound) {
  const Json plan = parsed();
  EXPECT_EQ(plan["request"]["options"]["teams"], "auto");
  EXPECT_EQ(plan["predicted"]["team_bound_ticks"],
            team_plan().summary.team_bound.value());
  const ReadPlan read = plan_from_json(plan_to_json(team_plan()), "plan");
  EXPECT_TRUE(read.digest_matches);
  EXPECT_EQ(read.plan.options.teams, kTeamsAuto);
  EXPECT_EQ(read.plan.parts[0].owners, team_plan().parts[0].owners);
}

// A wrong team is read, so that all of it can be told.
TEST(PlanJsonTeams, AWrongTeamIsLeftToValidate) {
  Json plan = parsed();
  plan["decisions"]["parts"][0]["owners"][1] = {7, 7};
  EXPECT_THAT(validate(plan_from_json(plan.dump(), "plan").plan),
              Contains(HasSubstr("rank 7 twice")));
}

TEST(PlanJsonTeams, HostileFilesAreRefused) {
  const auto refused = [](const auto& change, const std::string& says) {
    Json plan = parsed();
    change(plan);
    EXPECT_THAT([&] { plan_from_json(plan.dump(), "plan.json"); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("plan.json"), HasSubstr(says))));
  };
  refused([](Json& p) { p["request"]["options"].erase("teams"); },
          "team_bound_ticks of a plan without teams");
  refused([](Json& p) { p["request"]["options"]["teams"] = "off"; },
          "team_bound_ticks of a plan without teams");
  refused([](Json& p) { p["request"]["options"]["teams"] = "3"; }, "teams");
  refused([](Json& p) { p["request"]["options"]["teams"] = 4; }, "teams");
  refused([](Json& p) { p["request"]["options"]["exchange"] = "strips"; },
          "exchange strips is no longer supported; plan again");
  refused([](Json& p) { p["request"]["options"]["exchange"] = "rounds"; },
          "'exchange'");
  refused([](Json& p) { p["predicted"].erase("team_bound_ticks"); },
          "team_bound_ticks");
  refused([](Json& p) { p["predicted"]["team_bound_ticks"] = -1; },
          "team_bound_ticks");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] = {0, 1 << 20};
      },
      "owner");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] = {0, -1};
      },
      "owner");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] = {0, 1.5};
      },
      "owner");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] = {0, "1"};
      },
      "owner");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] =
            Json::array({Json::array({0})});
      },
      "owner");
  refused(
      [](Json& p) {
        p["decisions"]["parts"][0]["owners"][1] = std::vector<int>(5000, 0);
      },
      "a team of 5000 ranks");
}

TEST(PlanJsonTeams, TeamsThatAreOffAreNotInThePlan) {
  Json plan = parse_json(
      plan_to_json(plan_of(wide_and_small(1), "tp=8", {}, rule_with_strips())),
      {.what = "plan"});
  plan["decisions"]["parts"][0]["owners"][1] = {0, 1};
  EXPECT_THAT(validate(plan_from_json(plan.dump(), "plan").plan),
              Contains(HasSubstr("than teams=off allows: at most 1")));
  plan["predicted"]["team_bound_ticks"] = 5;
  EXPECT_THAT([&] { plan_from_json(plan.dump(), "plan"); },
              ThrowsMessage<UsageError>(HasSubstr("team_bound_ticks")));
}

}  // namespace
}  // namespace canzona::plan::validate_teams_test
