// Twenty steps for every size, each in many variants: one result.
#include <gtest/gtest.h>

#include "canzona/runtime/zero/test_zero_classes.h"

namespace canzona::runtime::zero_exactness_heavy_test {
namespace {

class ZeroSweep : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  Model model() const {
    return std::get<1>(GetParam()) ? toy_moe() : toy_model();
  }
  ZeroVariant variant(Random& random, const ZeroSizes& sizes,
                      int32_t most) const {
    ZeroVariant v = random_variant(random, sizes, most);
    v.rule = std::get<0>(GetParam());
    v.steps = 20;
    return v;
  }
};

TEST_P(ZeroSweep, TwentyStepsOfOneMicroBatch) {
  Random random(1);
  ResultClasses results(model(), 8);
  for (const ZeroSizes& sizes : all_zero_sizes(8))
    for (int again = 0; again < 4; ++again)
      ASSERT_TRUE(results.fit(variant(random, sizes, 2)));
  EXPECT_EQ(results.count(), 1U);
}

TEST_P(ZeroSweep, TwentyStepsOfSeveralMicroBatches) {
  for (const GradientKind gradients :
       {GradientKind::kRandom, GradientKind::kExact}) {
    Random random(2);
    ResultClasses results(model(), 4);
    for (const ZeroSizes& sizes : all_zero_sizes(4))
      for (int again = 0; again < 6; ++again) {
        ZeroVariant v = variant(random, sizes, 4);
        v.gradients = gradients;
        v.micro_batches = 4;
        ASSERT_TRUE(results.fit(v));
      }
    EXPECT_EQ(results.count(), gradients == GradientKind::kExact ? 1U : 3U);
  }
}

TEST_P(ZeroSweep, TwentyStepsOfOtherNumbersOfRanks) {
  for (const int32_t dp : {3, 6, 7}) {
    Random random(3);
    ResultClasses results(model(), dp);
    for (const ZeroSizes& sizes : all_zero_sizes(dp))
      for (int again = 0; again < 2; ++again) {
        ZeroVariant v = variant(random, sizes, 2);
        v.gradients = GradientKind::kExact;
        v.micro_batches = 2;
        ASSERT_TRUE(results.fit(v));
      }
    EXPECT_EQ(results.count(), 1U);
  }
}

// dp=2, ep=2: every size for dense tensors with every size for experts.
TEST_P(ZeroSweep, TwentyStepsOfExpertsOnTheirOwnRanks) {
  if (!std::get<1>(GetParam())) GTEST_SKIP() << "a model without experts";
  Random random(4);
  ResultClasses results(model(), 2);
  for (const ZeroSizes& sizes : all_zero_sizes(4))
    for (const ZeroSizes& experts : all_zero_sizes(2)) {
      ZeroVariant v = variant(random, sizes, 2);
      v.ep = 2;
      v.experts = spreads(v.strategy) ? experts : ZeroSizes{2, 2, 2};
      ASSERT_TRUE(results.fit(v));
    }
  EXPECT_EQ(results.count(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Heavy, ZeroSweep,
                         testing::Combine(testing::Values("muon", "shampoo",
                                                          "soap", "adamw"),
                                          testing::Bool()),
                         [](const auto& of) {
                           return std::get<0>(of.param) + (std::get<1>(of.param)
                                                               ? "_experts"
                                                               : "_dense");
                         });

// Random combinations of everything that a run can choose.
TEST(ZeroWishes, TogetherGiveOneResult) {
  ResultClasses results(toy_model(), 4);
  for (const ZeroSizes& sizes : all_zero_sizes(4))
    for (const std::string& strategy : strategy_names())
      for (const ReplicaSum sum :
           {ReplicaSum::kScatter, ReplicaSum::kAllReduce})
        for (const Overlap overlap :
             {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
          for (const MessageUnit message :
               {MessageUnit::kModule, MessageUnit::kParameter})
            for (const int32_t prefetch : {0, 1, 2, 5}) {
              const ZeroVariant v{.sizes = sizes,
                                  .strategy = strategy,
                                  .overlap = overlap,
                                  .message = message,
                                  .prefetch = prefetch,
                                  .replica_sum = sum,
                                  .steps = 2};
              if (!is_allowed(v)) continue;
              ASSERT_TRUE(results.fit(v));
            }
  EXPECT_EQ(results.count(), 1U);
}

}  // namespace
}  // namespace canzona::runtime::zero_exactness_heavy_test
