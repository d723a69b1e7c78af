// Modules larger than any layer, such as the embeddings of real models, use
// slots of their own.
#include <gtest/gtest.h>

#include <set>

#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::zero_large_test {
namespace {

Model with_large_vocabulary(bool tied) {
  Model model = toy_moe();
  for (Tensor& tensor : model.tensors)
    if (tensor.role == Role::kEmbedding || tensor.role == Role::kHead)
      tensor.shape = {400, 16};
  if (tied)
    std::erase_if(model.tensors,
                  [](const Tensor& t) { return t.role == Role::kHead; });
  return model;
}

class LargeModules : public testing::TestWithParam<bool> {};

TEST_P(LargeModules, HaveSlotsOfTheirOwn) {
  const Model model = with_large_vocabulary(GetParam());
  std::set<std::pair<std::string, std::string>> seen;
  for (const std::string prefetch : {"0", "3"})
    for (const ZeroSizes& sizes : all_zero_sizes(4)) {
      SCOPED_TRACE(cat(to_string(sizes), " prefetch ", prefetch));
      const Trial trial{
          .plan = small_plan(
              model, {.mesh = "dp=4",
                      .zero = to_string(sizes),
                      .zero_options = {.prefetch = parse_prefetch(prefetch)}}),
          .gradients = GradientKind::kRandom};
      const TrialResult result = run_trial(trial);
      seen.emplace(result.parameters, result.states);
      ASSERT_EQ(seen.size(), 1U);
      const PoolSizes pools = pool_sizes(trial.plan.parts[0], 0);
      if (sizes.places() > 1) {
        EXPECT_GT(pools.large_slot, pools.slot);
      }
      const std::vector<RankCost> predicted = predict(trial.plan);
      for (size_t r = 0; r < predicted.size(); ++r) {
        EXPECT_EQ(result.memory[r].pools, predicted[r].memory.pools);
        EXPECT_LE(result.pools[r].bytes, predicted[r].memory.pools.value());
      }
    }
}

// If both sizes are the same, a module of one tensor is gathered and scattered
// in place, without staging as large as a vocabulary.
TEST(LargeModulesAlone, NeedNoStaging) {
  const Plan plan = small_plan(with_large_vocabulary(false),
                               {.mesh = "dp=4", .zero = "zero3"});
  const PoolSizes pools = pool_sizes(plan.parts[0], 0);
  EXPECT_EQ(pools.large_slot, 400 * 16);
  EXPECT_LE(pools.parameter_staging, pools.slot);
  EXPECT_LE(pools.gradient_staging, pools.slot);
}

INSTANTIATE_TEST_SUITE_P(Heads, LargeModules, testing::Bool(),
                         [](const auto& of) {
                           return of.param ? "tied" : "untied";
                         });

}  // namespace
}  // namespace canzona::runtime::zero_large_test
