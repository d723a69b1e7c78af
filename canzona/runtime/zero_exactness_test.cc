// The step's result does not depend on where states, gradients and parameters
// are cut.
#include <gtest/gtest.h>

#include <set>

#include "canzona/runtime/test_plans.h"
#include "canzona/runtime/test_trial.h"

namespace canzona {
namespace {

using Digests = std::pair<std::string, std::string>;

Digests digests_of(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return {result.parameters, result.states};
}

class ZeroRule : public testing::TestWithParam<std::string> {
 protected:
  PlanWish wish(const std::string& mesh, const ZeroSizes& sizes) const {
    return {.mesh = mesh,
            .rule = GetParam(),
            .options = quick(GetParam()),
            .zero = to_string(sizes)};
  }
};

TEST_P(ZeroRule, GivesOneResultForAllSizes) {
  for (const int32_t dp : {1, 2, 4, 8}) {
    std::set<Digests> seen;
    for (const ZeroSizes& sizes : all_zero_sizes(dp)) {
      SCOPED_TRACE(cat("dp=", dp, " ", to_string(sizes)));
      seen.insert(digests_of(
          {.plan = small_plan(toy_moe(), wish(cat("dp=", dp), sizes)),
           .gradients = GradientKind::kRandom,
           .steps = 4,
           .clip_norm = 0.5}));
      ASSERT_EQ(seen.size(), 1U);
    }
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Rules, ZeroRule,
                         testing::Values("muon", "shampoo", "soap", "adamw"));

}  // namespace canzona
