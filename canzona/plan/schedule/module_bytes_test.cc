#include "canzona/plan/schedule/modules.h"

#include <gtest/gtest.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::module_bytes_test {
namespace {

WireBytes sum_of(const std::vector<PurposeBytes>& modules, Purpose purpose) {
  WireBytes sum;
  for (const PurposeBytes& module : modules) sum += of(module, purpose);
  return sum;
}

WireBytes sum_of(const RankCost& cost, Collective one, Collective other) {
  WireBytes sum = cost.wire[static_cast<size_t>(one)];
  sum += cost.wire[static_cast<size_t>(other)];
  return sum;
}

void expect_equal(const WireBytes& got, const WireBytes& expected) {
  EXPECT_EQ(got.sent_intra, expected.sent_intra);
  EXPECT_EQ(got.sent_inter, expected.sent_inter);
  EXPECT_EQ(got.received_intra, expected.received_intra);
  EXPECT_EQ(got.received_inter, expected.received_inter);
}

class ModuleBytes
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Modules of experts, with the dense tensors beside them, send what the step
// sends.
TEST_P(ModuleBytes, AddsUpToTheStep) {
  const auto& [mesh, strategy] = GetParam();
  for (const int32_t ranks_per_node : {1, 3, 8}) {
    PlanOptions options;
    options.strategy = strategy;
    options.ranks_per_node = ranks_per_node;
    const Plan plan = plan_of(toy_moe(), mesh, options);
    const std::vector<RankCost> costs = predict(plan);
    for (size_t r = 0; r < costs.size(); ++r) {
      SCOPED_TRACE(cat("rank ", r, ", ", ranks_per_node, " on a node"));
      const auto modules = module_bytes(plan, static_cast<int32_t>(r));
      expect_equal(
          sum_of(modules, Purpose::kSum),
          sum_of(costs[r], Collective::kReduceScatter, Collective::kAllReduce));
      expect_equal(
          sum_of(modules, Purpose::kPublish),
          sum_of(costs[r], Collective::kAllGather, Collective::kBroadcast));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plan, ModuleBytes,
    testing::Combine(testing::Values("dp=4", "dp=2,ep=2", "dp=3,ep=4,tp=2",
                                     "dp=2,cp=2,ep=2", "dp=1,ep=4,pp=2"),
                     testing::ValuesIn(strategy_names())));

}  // namespace
}  // namespace canzona::plan::module_bytes_test
