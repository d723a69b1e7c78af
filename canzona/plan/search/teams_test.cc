// Teams of whole plans.
#include "canzona/plan/search/teams.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_random.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::teams_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

// Teams level a plan whose homes and layout are those without teams.
void expect_shared(const Plan& whole, const Plan& shared) {
  EXPECT_EQ(count_teams(whole), 0u);
  EXPECT_GT(count_teams(shared), 0u);
  EXPECT_LT(shared.summary.makespan.value(),
            whole.summary.makespan.value() * 6 / 10);
  EXPECT_GE(shared.summary.makespan, shared.summary.team_bound);
  EXPECT_LT(shared.summary.team_bound, whole.summary.bound);
  EXPECT_EQ(shared.summary.bound, whole.summary.bound);
  EXPECT_THAT(validate(shared), IsEmpty());
  EXPECT_EQ(shared.parts[0].home, whole.parts[0].home);
  EXPECT_EQ(shared.parts[0].buckets, whole.parts[0].buckets);
}

// One layer on four ranks: without teams one of them has the tall matrix alone
// and the step waits for it.
TEST(Teams, ShareWhatOneRankWouldBeSlowWith) {
  const Model model = wide_and_small(1);
  const Plan whole = plan_of(model, "tp=4", {}, rule_with_strips());
  const Plan shared = plan_of(model, "tp=4", with_teams(), rule_with_strips());
  expect_shared(whole, shared);
}

// The same with SOAP, whose wide and tall matrices have one factor. What counts
// is a period, of which each refresh is a head's.
TEST(Teams, ShareMatricesThatAreRefreshed) {
  const Model model = wide_and_small(1);
  for (const int phases : {1, 3}) {
    const RuleChoice rule = soap_with_strips(8, phases);
    const Plan whole = plan_of(model, "tp=4", {}, rule);
    const Plan shared = plan_of(model, "tp=4", with_teams(), rule);
    expect_shared(whole, shared);
    EXPECT_LT(shared.summary.step_seconds_mean,
              0.6 * whole.summary.step_seconds_mean);
    EXPECT_GT(shared.summary.step_seconds_worst,
              shared.summary.step_seconds_mean);
  }
}

// A rank without matrices helps the others in their refreshes.
TEST(Teams, HelpInRefreshes) {
  const Model model = two_squares();
  const RuleChoice shampoo{"shampoo", {{"precondition_frequency", "2"}}};
  for (const RuleChoice& rule :
       {soap_with_helpers(1), soap_with_helpers(2), shampoo}) {
    SCOPED_TRACE(rule.name);
    const Plan whole = plan_of(model, "tp=4", {}, rule);
    const Plan helped = plan_of(model, "tp=4", with_teams(), rule);
    EXPECT_GT(count_teams(helped), 0u);
    for (size_t m = 0; m < helped.parts[0].owners.size(); ++m)
      EXPECT_LE(helped.parts[0].owners[m].size(), 2u);
    EXPECT_THAT(validate(helped), IsEmpty());
    EXPECT_LE(helped.summary.makespan, whole.summary.makespan);
    EXPECT_GE(helped.summary.makespan, helped.summary.team_bound);
    EXPECT_LE(helped.summary.step_seconds_mean,
              kWorthTeams * whole.summary.step_seconds_mean);
    EXPECT_EQ(helped.parts[0].home, whole.parts[0].home);
    EXPECT_EQ(helped.parts[0].buckets, whole.parts[0].buckets);
    const std::string text = plan_to_json(helped);
    EXPECT_EQ(plan_to_json(plan_from_json(text, "plan").plan), text);
  }
}

// Where a refresh is rare, a helper saves too little; where links are slow, it
// saves nothing.
TEST(Teams, DoNotHelpWhereItDoesNotPay) {
  RuleChoice rare = soap_with_helpers();
  rare.options["precondition_frequency"] = "1000";
  EXPECT_EQ(count_teams(plan_of(two_squares(), "tp=4", with_teams(), rare)),
            0u);
  PlanOptions slow = with_teams();
  slow.links.intra_bytes_per_second = 1e3;
  EXPECT_EQ(
      count_teams(plan_of(two_squares(), "tp=4", slow, soap_with_helpers())),
      0u);
}

TEST(Teams, AreNoLargerThanAsked) {
  const Model model = wide_and_small(1);
  for (const int32_t most : {2, 4, 8}) {
    const Plan plan =
        plan_of(model, "tp=8", with_teams(most), rule_with_strips());
    size_t largest = 1;
    for (size_t m = 0; m < plan.parts[0].owners.size(); ++m)
      largest = std::max(largest, plan.parts[0].owners[m].size());
    EXPECT_EQ(largest, static_cast<size_t>(most));
    EXPECT_THAT(validate(plan), IsEmpty());
  }
}

TEST(Teams, StayOnOneNode) {
  PlanOptions options = with_teams();
  options.ranks_per_node = 2;
  const Plan plan =
      plan_of(wide_and_small(1), "tp=8", options, rule_with_strips());
  EXPECT_GT(count_teams(plan), 0u);
  for (size_t m = 0; m < plan.parts[0].owners.size(); ++m) {
    std::set<int32_t> nodes;
    for (const int32_t t : plan.parts[0].owners[m]) nodes.insert(t / 2);
    EXPECT_EQ(nodes.size(), 1u);
  }
  EXPECT_THAT(validate(plan), IsEmpty());
}

// Four equal layers on four ranks are level already.
TEST(Teams, AreNotTakenWhereTheyDoNotPay) {
  EXPECT_EQ(count_teams(plan_of(wide_and_small(4), "tp=4", with_teams(),
                                rule_with_strips())),
            0u);
  // Links so slow that no sum pays.
  PlanOptions slow = with_teams();
  slow.links.intra_bytes_per_second = 1e3;
  slow.links.inter_bytes_per_second = 1e18;
  EXPECT_EQ(
      count_teams(plan_of(wide_and_small(1), "tp=4", slow, rule_with_strips())),
      0u);
}

TEST(Teams, GoOnWithoutWhereTheyCannotBe) {
  const Model model = wide_and_small(1);
  for (const auto& [mesh, rule] :
       std::vector<std::pair<std::string, RuleChoice>>{
           {"dp=4", rule_with_strips()},
           {"tp=4", rule_with_strips(1)},
           {"tp=4", {"nsgd", {}}},
           {"tp=4", {"adamw", {}}}}) {
    const Plan plan = plan_of(model, mesh, with_teams(), rule);
    EXPECT_EQ(count_teams(plan), 0u) << mesh << rule.name;
    EXPECT_THAT(validate(plan), IsEmpty());
    EXPECT_GE(plan.summary.makespan, plan.summary.team_bound);
    EXPECT_LE(plan.summary.team_bound, plan.summary.bound);
    EXPECT_TRUE(plan.period == 1 ||
                plan.summary.team_bound == plan.summary.bound);
    EXPECT_NE(why_no_teams(plan, *make_rule_facts(rule.name, rule.options)),
              "");
  }
}

TEST(Teams, ASizeThatCannotBeIsRefusedByName) {
  const Model model = wide_and_small(1);
  const auto refused = [&](const std::string& mesh, PlanOptions options,
                           const RuleChoice& rule) {
    return [=, &model] { plan_of(model, mesh, options, rule); };
  };
  EXPECT_THAT(refused("tp=2", with_teams(4), rule_with_strips()),
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("teams 4"), HasSubstr("have 2"))));
  EXPECT_THAT(refused("dp=4", with_teams(2), rule_with_strips()),
              ThrowsMessage<UsageError>(HasSubstr("have a single rank")));
  EXPECT_THAT(
      refused("tp=4", with_teams(2), {"nsgd", {}}),
      ThrowsMessage<UsageError>(HasSubstr("rule nsgd cannot share any")));
  EXPECT_THAT(
      refused("tp=4", with_teams(2), rule_with_strips(1)),
      ThrowsMessage<UsageError>(HasSubstr("rule muon cannot share any")));
  PlanOptions other = with_teams(2);
  other.strategy = "contiguous";
  EXPECT_THAT(refused("tp=4", other, rule_with_strips()),
              ThrowsMessage<UsageError>(HasSubstr("micro-groups=balanced")));
  EXPECT_THAT(refused("tp=4", with_teams(3), rule_with_strips()),
              ThrowsMessage<UsageError>(HasSubstr("teams 3")));
  for (const char* text : {"3", "1", "0", "16", "", "on", "-2"})
    EXPECT_THAT([&] { parse_teams(text); },
                ThrowsMessage<UsageError>(HasSubstr("auto, off, 2, 4 or 8")));
}

// Such a plan does not mention teams.
TEST(Teams, OffIsAsEver) {
  const Plan plan = plan_of(wide_and_small(2), "dp=2,tp=2");
  const std::string text = plan_to_json(plan);
  EXPECT_EQ(text.find("team"), std::string::npos);
}

// On random models and meshes: sound, never below the bound, never worse than
// whole owners, read back equal, the same every time.
TEST(Teams, HoldOnManyMeshes) {
  Random random(22);
  int with = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const Mesh mesh = random_mesh(random);
    std::vector<Tensor> tensors;
    const int32_t layers = mesh.pp * random.small(1, 2);
    for (int32_t l = 0; l < layers; ++l) {
      for (int32_t i = 0; i < random.small(1, 4); ++i) {
        Tensor t = random_tensor(random, mesh, cat("l", l, ".", i), l);
        const int64_t times = random.pick<int64_t>({1, 16, 64, 128});
        t.shape[t.shape[0] > t.shape[1] ? 0 : 1] *= times;
        tensors.push_back(t);
      }
      for (int32_t e = 0; mesh.ep > 1 && e < 4; ++e) {
        tensors.push_back(random_tensor(random, mesh, cat("l", l, ".e", e), l));
        tensors.back().expert = e;
      }
    }
    const Model model = model_of(std::move(tensors));
    PlanOptions options = with_teams();
    options.ranks_per_node = random.pick<int32_t>({1, 2, 3, 8});
    options.capacity_bytes = random.pick<int64_t>({0, 1 << 14, 1 << 30});
    options.links.latency_seconds = random.pick<double>({0, 1e-9});
    const int strips = random.pick<int>({2, 8});
    RuleChoice rule = rule_with_strips(strips);
    if (trial % 3 == 2) {
      rule = soap_with_strips(strips, trial % 2 + 1);
      rule.options["max_preconditioner_dim"] = "48";
    }
    const Plan plan = plan_of(model, to_string(mesh), options, rule);
    ASSERT_THAT(validate(plan), IsEmpty()) << trial;
    EXPECT_GE(plan.summary.makespan, plan.summary.team_bound) << trial;
    PlanOptions off = options;
    off.teams = kTeamsOff;
    const Plan whole = plan_of(model, to_string(mesh), off, rule);
    EXPECT_LE(plan.summary.makespan, whole.summary.makespan) << trial;
    EXPECT_LE(plan.summary.step_seconds_mean,
              whole.summary.step_seconds_mean *
                  (count_teams(plan) > 0 ? kWorthTeams : 1))
        << trial;
    // Teams do not break a cap that whole owners keep.
    PlanOptions capped = options;
    capped.memory_cap_bytes = whole.summary.memory_per_rank_max.value();
    EXPECT_LE(plan_of(model, to_string(mesh), capped, rule)
                  .summary.memory_per_rank_max.value(),
              capped.memory_cap_bytes)
        << trial;
    EXPECT_LE(plan.summary.team_bound, whole.summary.makespan) << trial;
    const std::string text = plan_to_json(plan);
    EXPECT_EQ(plan_to_json(plan_from_json(text, "plan").plan), text);
    EXPECT_EQ(plan_to_json(plan_of(model, to_string(mesh), options, rule)),
              text);
    with += count_teams(plan) > 0;
  }
  EXPECT_GT(with, 20);
}

}  // namespace
}  // namespace canzona::plan::teams_test
