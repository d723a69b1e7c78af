// A few moments of every kind of fault; many random ones are in
// fault_trials_heavy_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/text.h"
#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime::fault_trials_test {
namespace {

using testing::ContainsRegex;
using testing::IsEmpty;
using testing::Not;
using testing::Value;

class FaultAt : public testing::TestWithParam<std::tuple<Fault, uint64_t>> {};

TEST_P(FaultAt, EndsTheOthers) {
  FaultTrial trial;
  trial.plan = small_plan(toy_model(), {.mesh = "dp=2,tp=2"});
  trial.kind = std::get<0>(GetParam());
  trial.victim = 2;
  trial.moment = std::get<1>(GetParam());
  trial.deadline = std::chrono::seconds(2);
  const FaultOutcome outcome = run_fault(trial);
  ASSERT_TRUE(outcome.happened);
  int num_named = 0;
  for (const size_t rank : {0, 1, 3}) {
    SCOPED_TRACE(cat("rank ", rank, ", ", outcome.stage));
    EXPECT_THAT(outcome.words[rank], Not(IsEmpty()));
    num_named += Value(outcome.words[rank], ContainsRegex("ranks? ([01], )*2"));
  }
  // A rank that is only late may be missed through another that waits for it.
  EXPECT_GE(num_named, trial.kind == Fault::kStall ? 1 : 3);
}

INSTANTIATE_TEST_SUITE_P(Runtime, FaultAt,
                         testing::Combine(testing::Values(Fault::kThrow,
                                                          Fault::kStall,
                                                          Fault::kLeave),
                                          testing::Values(1, 20)));

}  // namespace
}  // namespace canzona::runtime::fault_trials_test
