// `balanced` where tensors hold several matrices, which share a home.
#include <gmock/gmock.h>

#include "canzona/plan/strategies/strategy.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::balanced_split_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Gate and up of one tensor are two matrices of one home, with owners of their
// own.
TEST(BalancedSplit, KeepsTheMatricesOfATensorAtOneHome) {
  std::vector<Tensor> tensors;
  for (int32_t layer = 0; layer < 8; ++layer) {
    Tensor t = matrix_tensor(cat("layers.", layer, ".mlp.gate_up_proj.weight"),
                             32, 8, Cut::kRows, layer);
    t.sections = {{"gate", {0, 16, 16, 1}, 1}, {"up", {16, 16, 16, 1}, 1}};
    tensors.push_back(t);
  }
  PlanOptions options;
  options.splits = parse_splits("gate-up");
  const Plan plan = plan_of(model_of(tensors), "dp=4,tp=2", options);
  EXPECT_THAT(validate(plan), IsEmpty());
  ASSERT_THAT(plan.matrices, SizeIs(16));
  std::vector<int> matrices(8, 0);
  for (size_t m = 0; m < 16; ++m) {
    const auto t = static_cast<size_t>(plan.matrices[m].tensor);
    ++matrices[static_cast<size_t>(plan.parts[0].home[t] * 2 +
                                   plan.parts[0].owners[m].front())];
  }
  EXPECT_THAT(matrices, ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
}

// Largest matrix first to the least loaded rank; once a tensor has a home, only
// to ranks of it.
int64_t longest_first(const Plan& plan) {
  std::vector<size_t> order;
  for (size_t m = 0; m < plan.matrices.size(); ++m) order.push_back(m);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.costs[a].every_step > plan.costs[b].every_step;
  });
  std::vector<int64_t> loads(static_cast<size_t>(plan.mesh.world()), 0);
  std::vector<int32_t> home(plan.model.tensors.size(), -1);
  for (size_t m : order) {
    int32_t& at = home[static_cast<size_t>(plan.matrices[m].tensor)];
    const int32_t begin = at < 0 ? 0 : at * plan.mesh.tp;
    const int32_t end = at < 0 ? plan.mesh.world() : begin + plan.mesh.tp;
    const auto least =
        std::min_element(loads.begin() + begin, loads.begin() + end);
    *least += plan.costs[m].every_step.value();
    at = static_cast<int32_t>(least - loads.begin()) / plan.mesh.tp;
  }
  return *std::max_element(loads.begin(), loads.end());
}

TEST(BalancedSplit, IsNeverWorseThanLongestFirst) {
  for (const char* preset :
       {"qwen3-0.6b", "qwen3-1.7b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    const Model model = read_model(preset, {.fused = true});
    for (const char* split : {"qkv", "head", "gate-up", "qkv,gate-up"}) {
      for (const char* mesh :
           {"dp=4,tp=8", "dp=8,tp=8", "dp=16,tp=2", "dp=32,tp=8"}) {
        PlanOptions options;
        options.alpha = 1;
        options.splits = parse_splits(split);
        const Plan plan = plan_of(model, mesh, options);
        EXPECT_LE(plan.summary.makespan.value(), longest_first(plan))
            << preset << " split " << split << " on " << mesh;
      }
    }
  }
}

}  // namespace
}  // namespace canzona::plan::balanced_split_test
