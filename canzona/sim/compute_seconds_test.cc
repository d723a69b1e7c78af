#include "canzona/sim/workload.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::sim::compute_seconds_test {
namespace {

constexpr double kLayer = 1920;       // weights of a layer of the toy model
constexpr double kVocabulary = 1024;  // of its embedding and its head

TEST(ComputeSeconds, CountsTwoAndFourFlopsPerWeightAndToken) {
  const auto seconds =
      compute_seconds(toy_model(2), {.tokens = 10, .flops_per_second = 5});
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_EQ(seconds[0].forward, 0);
  EXPECT_EQ(seconds[0].backward, 0);
  EXPECT_DOUBLE_EQ(seconds[1].forward, 2 * kLayer * 10 / 5);
  EXPECT_DOUBLE_EQ(seconds[2].backward, 4 * kLayer * 10 / 5);
  EXPECT_DOUBLE_EQ(seconds[3].forward, 2 * kVocabulary * 10 / 5);
}

TEST(ComputeSeconds, CountsAttentionInLayersAlone) {
  const ComputeLoad load{
      .tokens = 10, .length = 100, .width = 16, .flops_per_second = 5};
  const auto seconds = compute_seconds(toy_model(2), load);
  EXPECT_DOUBLE_EQ(seconds[1].forward, 2 * (kLayer + 1600) * 10 / 5);
  EXPECT_DOUBLE_EQ(seconds[1].backward, 4 * (kLayer + 1600) * 10 / 5);
  EXPECT_DOUBLE_EQ(seconds[3].backward, 4 * kVocabulary * 10 / 5);
}

TEST(ComputeSeconds, RecomputationRunsForwardOnceMore) {
  const ComputeLoad load{.tokens = 1, .flops_per_second = 1, .recompute = true};
  const auto seconds = compute_seconds(toy_model(1), load);
  EXPECT_DOUBLE_EQ(seconds[1].forward, 2 * kLayer);
  EXPECT_DOUBLE_EQ(seconds[1].backward, 6 * kLayer);
}

TEST(ComputeSeconds, ATiedHeadMultipliesByTheEmbedding) {
  Model model = toy_model(1);
  EXPECT_FALSE(is_tied(model));
  model.tensors.pop_back();
  EXPECT_TRUE(is_tied(model));
  const auto seconds =
      compute_seconds(model, {.tokens = 1, .flops_per_second = 1});
  EXPECT_EQ(seconds[0].forward, 0);
  EXPECT_DOUBLE_EQ(seconds[2].forward, 2 * kVocabulary);
}

// 4 experts of 256 weights, of which a token visits one.
TEST(ComputeSeconds, CountsTheExpertsThatATokenVisits) {
  const ComputeLoad load{
      .tokens = 1, .flops_per_second = 1, .experts_per_token = 1};
  const auto seconds = compute_seconds(toy_moe(1, 4), load);
  EXPECT_DOUBLE_EQ(seconds[1].forward, 2 * (kLayer + 256));
}

TEST(ComputeSeconds, TensorParallelRanksShareTheWork) {
  const ComputeLoad load{
      .tokens = 1, .flops_per_second = 1, .tensor_parallel = 4};
  const auto seconds = compute_seconds(toy_model(1), load);
  EXPECT_DOUBLE_EQ(seconds[1].forward, 2 * kLayer / 4);
}

TEST(ComputeSeconds, RefusesLoadsThatMakeNoSense) {
  const Model model = toy_model(1);
  EXPECT_THROW(compute_seconds(model, {.tokens = 1}), UsageError);
  EXPECT_THROW(compute_seconds(model, {.tokens = -1, .flops_per_second = 1}),
               UsageError);
  EXPECT_THROW(
      compute_seconds(toy_moe(1, 4), {.tokens = 1, .flops_per_second = 1}),
      UsageError);
  EXPECT_THROW(compute_seconds(toy_moe(1, 4), {.tokens = 1,
                                               .flops_per_second = 1,
                                               .experts_per_token = 5}),
               UsageError);
}

}  // namespace
}  // namespace canzona::sim::compute_seconds_test
