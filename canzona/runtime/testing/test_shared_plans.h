// What holds however ranks share matrices: in teams, with helpers, by blocks.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/runtime/testing/test_bits.h"
#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime {

// The planner's own plans for links that cost nothing, read back from their
// files, are sound and have one digest. With teams they share something.
inline void expect_own_plans_run(
    const Model& model, const std::string& rule, const RuleOptions& options,
    const std::function<bool(const Plan&)>& is_shared) {
  std::set<Bits> seen;
  for (const int32_t teams : {kTeamsOff, 2, kTeamsAuto}) {
    SCOPED_TRACE(teams);
    PlanOptions wish;
    wish.teams = teams;
    wish.parameters = DType::kFp32;
    wish.links.intra_bytes_per_second = 1e18;
    wish.links.latency_seconds = 0;
    const auto facts = make_rule_facts(rule, with_device(rule, options, "cpu"));
    const Plan plan = make_plan({model, parse_mesh("tp=4"), *facts, wish});
    EXPECT_EQ(is_shared(plan), teams != kTeamsOff);
    const Plan read = plan_from_json(plan_to_json(plan), "test").plan;
    EXPECT_EQ(read.parts[0].owners, plan.parts[0].owners);
    EXPECT_THAT(validate(read), testing::IsEmpty());
    seen.insert(bits_of({.plan = read, .steps = 7}));
    ASSERT_EQ(seen.size(), 1U);
  }
}

// A gradient that is not finite on one of four tp ranks skips the fourth step
// on all of them; everything goes on as if it had not been.
inline void expect_steps_skipped_alike(const std::vector<Plan>& plans) {
  std::set<Bits> seen;
  for (const Plan& plan : plans) {
    SCOPED_TRACE(seen.size());
    Trial trial{.plan = plan, .steps = 8};
    trial.poison = [](Runtime& runtime, int64_t step, int32_t tensor,
                      std::span<float> gradient) {
      if (step == 4 && tensor == 1 && runtime.coordinates().t == 2)
        gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    };
    const TrialResult result = run_trial(trial);
    EXPECT_TRUE(result.outcomes[3].skipped);
    EXPECT_FALSE(result.outcomes[4].skipped);
    seen.insert({result.parameters, result.states});
    ASSERT_EQ(seen.size(), 1U);
  }
}

}  // namespace canzona::runtime
