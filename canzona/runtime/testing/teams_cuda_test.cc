// Teams of thread ranks that share a GPU give the bits of whole owners.
#include <gtest/gtest.h>

#include <set>

#include "canzona/linalg/cuda_device.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime::teams_cuda_test {
namespace {

class TeamsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  }
};

class TeamsInPrecision : public TeamsOnGpu,
                         public testing::WithParamInterface<std::string> {};

std::string digest_on_gpu(const Plan& plan, int steps, bool pipelined = true) {
  const TrialResult result = run_trial({.plan = plan,
                                        .device = "cuda",
                                        .gradients = GradientKind::kRandom,
                                        .steps = steps,
                                        .clip_norm = 0.5,
                                        .options = {.pipelined = pipelined}});
  return result.parameters + result.states;
}

TEST_P(TeamsInPrecision, GiveTheBitsOfWholeOwners) {
  for (const std::string form : {"gram", "symmetric", "standard"}) {
    std::set<std::string> seen;
    for (const std::string mesh : {"tp=2", "tp=8"})
      for (const int32_t size : {1, 2, 4, 8}) {
        SCOPED_TRACE(cat(form, " ", mesh, " ", size));
        seen.insert(digest_on_gpu(team_plan(
                                      mesh, strips(8, form, GetParam()),
                                      [&](size_t) { return size; }, "cuda"),
                                  5));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(OnGpu, TeamsInPrecision,
                         testing::Values("fp16", "bf16", "fp32"),
                         [](const auto& of) { return of.param; });

TEST_F(TeamsOnGpu, OfAllSizesMayMix) {
  std::set<std::string> seen;
  const int32_t sizes[] = {1, 2, 4, 8, 4, 2, 1, 8};
  for (const size_t turn : {0, 1, 2, 3}) {
    SCOPED_TRACE(turn);
    seen.insert(digest_on_gpu(
        team_plan(
            "tp=8", strips(8),
            [&](size_t m) {
              return turn == 0 ? 1 : sizes[(m + turn) % std::size(sizes)];
            },
            "cuda"),
        20, turn != 3));
    ASSERT_EQ(seen.size(), 1U);
  }
}

TEST_F(TeamsOnGpu, OfSoapGiveTheBitsOfWholeOwners) {
  for (const std::string products : {"fp32", "bf16x3"}) {
    std::set<std::string> seen;
    for (const std::string mesh : {"tp=2", "tp=4"})
      for (const int32_t size : {1, 2, 4}) {
        SCOPED_TRACE(cat(products, " ", mesh, " ", size));
        seen.insert(
            digest_on_gpu(soap_team_plan(
                              mesh, one_factor(8, {{"products", products}}),
                              [&](size_t) { return size; }, "zero1", "cuda"),
                          8, size != 4));
        ASSERT_EQ(seen.size(), 1U);
      }
  }
}

TEST_F(TeamsOnGpu, WithHelpersGiveTheBitsOfWholeOwners) {
  for (const std::string rule : {"soap", "shampoo"})
    for (const std::string products : {"fp32", "bf16x3"}) {
      std::set<std::string> seen;
      for (const bool helped : {false, true})
        for (const bool pipelined : {true, false}) {
          SCOPED_TRACE(cat(rule, " ", products, " ", helped, " ", pipelined));
          seen.insert(digest_on_gpu(
              helper_plan("tp=4", helped, {{"products", products}}, "zero1",
                          rule, "cuda"),
              8, pipelined));
          ASSERT_EQ(seen.size(), 1U);
        }
    }
}

TEST_F(TeamsOnGpu, SendAndReserveWhatThePlanSays) {
  const Plan plan = team_plan(
      "dp=2,tp=4", strips(8), [](size_t) { return 4; }, "cuda");
  const std::vector<RankCost> predicted = predict(plan);
  const TrialResult result =
      run_trial({.plan = plan, .device = "cuda", .steps = 1});
  for (size_t r = 0; r < predicted.size(); ++r) {
    EXPECT_EQ(result.sent[r].total(), predicted[r].bytes_sent());
    EXPECT_EQ(result.memory[r].total(), predicted[r].memory.total());
  }
}

}  // namespace
}  // namespace canzona::runtime::teams_cuda_test
