// The runtime sends and reserves what the plan predicts.
#include <gtest/gtest.h>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::traffic_test {
namespace {

class EveryPlan : public testing::TestWithParam<std::string> {};

int64_t sent(const RankCost& cost, Collective collective) {
  return cost.wire[static_cast<size_t>(collective)].sent();
}

void expect_as_predicted(const Plan& plan, int steps,
                         const RuntimeOptions& options = {}) {
  const std::vector<RankCost> predicted = predict(plan);
  const TrialResult result =
      run_trial({.plan = plan, .steps = steps, .options = options});
  for (size_t r = 0; r < predicted.size(); ++r) {
    SCOPED_TRACE(cat("rank ", r));
    const RankCost& cost = predicted[r];
    const Groups::Sent& got = result.sent[r];
    EXPECT_EQ(got.reduce_scatter,
              steps * sent(cost, Collective::kReduceScatter));
    EXPECT_EQ(got.all_reduce, steps * sent(cost, Collective::kAllReduce));
    EXPECT_EQ(got.gather, steps * sent(cost, Collective::kGather));
    EXPECT_EQ(got.scatter, steps * sent(cost, Collective::kScatter));
    EXPECT_EQ(got.all_gather + got.broadcast,
              steps * (sent(cost, Collective::kAllGather) +
                       sent(cost, Collective::kBroadcast)));
    const RankMemory& memory = result.memory[r];
    EXPECT_EQ(memory.parameters, cost.memory.parameters);
    EXPECT_EQ(memory.gradients, cost.memory.gradients);
    EXPECT_EQ(memory.master, cost.memory.master);
    EXPECT_EQ(memory.states, cost.memory.states);
    EXPECT_EQ(memory.buffers, cost.memory.buffers);
  }
}

TEST_P(EveryPlan, SendsAndReservesWhatThePlanSaid) {
  for (const std::string& mesh : many_meshes())
    for (const std::string rule : {"muon", "adamw", "shampoo", "soap"})
      for (const DType parameters : {DType::kFp32, DType::kBf16}) {
        SCOPED_TRACE(cat(mesh, " ", rule, " ", to_string(parameters)));
        expect_as_predicted(small_plan(toy_moe(), {.mesh = mesh,
                                                   .strategy = GetParam(),
                                                   .rule = rule,
                                                   .options = quick(rule),
                                                   .parameters = parameters}),
                            2);
      }
}

TEST_P(EveryPlan, DoesSoWhereTensorsAreSplit) {
  for (const std::string mesh : {"dp=2", "tp=4", "dp=2,tp=2"})
    for (const std::string split : {"qkv", "head,gate-up"}) {
      SCOPED_TRACE(cat(mesh, " ", split));
      expect_as_predicted(
          small_plan(toy_model(),
                     {.mesh = mesh, .strategy = GetParam(), .split = split}),
          1);
    }
}

TEST_P(EveryPlan, DoesSoWithLinksOfMuon) {
  const auto check = [](const std::string& rule, const RuleOptions& options) {
    SCOPED_TRACE(cat(rule, " ", options.empty() ? "" : options.begin()->first));
    expect_as_predicted(small_plan(toy_moe(), {.mesh = "dp=2,tp=2",
                                               .strategy = GetParam(),
                                               .rule = rule,
                                               .options = options}),
                        2);
  };
  for (const std::string preset : {"nanochat", "normuon", "nvidia-normuon",
                                   "nvidia-namo", "nvidia-adamuon", "muonh"})
    check("muon_" + preset, {});
  check("muon", {{"equilibrate", "rows"}});
  check("muon", {{"renorm", "on"}});
}

// The second field doubles what is gathered, but not what is scattered.
TEST_P(EveryPlan, DoesSoForARuleThatGathersTwoFields) {
  const Plan plan =
      small_plan(toy_model(),
                 {.mesh = "dp=2,tp=2",
                  .strategy = GetParam(),
                  .rule = "soap",
                  .options = {{"decay_form", "l2"}, {"l2_in_factors", "off"}}});
  ASSERT_EQ(make_rule_facts(plan.rule, plan.rule_options)->gather_fields(), 2);
  expect_as_predicted(plan, 2);
}

INSTANTIATE_TEST_SUITE_P(Runtime, EveryPlan,
                         testing::ValuesIn(strategy_names()),
                         [](const auto& of) { return of.param; });

// ZeRO-1: one reduce-scatter of the gradients, one all-gather of the
// parameters, whatever the owners.
TEST(DataParallelTraffic, IsThatOfZero1) {
  const Model model = toy_model();
  int64_t elements = 0;
  for (const Tensor& tensor : model.tensors) elements += tensor.elements();
  const int steps = 3, dp = 4;
  const TrialResult result = run_trial(
      {.plan = small_plan(model, PlanWish{.mesh = "dp=4"}), .steps = steps});
  int64_t reduced = 0, gathered = 0, in_step = 0;
  for (const Groups::Sent& sent : result.sent) {
    reduced += sent.reduce_scatter;
    gathered += sent.all_gather;
    in_step += sent.gather + sent.scatter + sent.all_reduce + sent.broadcast;
  }
  EXPECT_EQ(reduced, steps * elements * (dp - 1) * kBytesPerFp32);
  EXPECT_EQ(gathered, steps * elements * (dp - 1) * kBytesPerFp32);
  EXPECT_EQ(in_step, 0);
}

}  // namespace
}  // namespace canzona::runtime::traffic_test
