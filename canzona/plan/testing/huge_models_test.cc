// Models at the edge of what 64 bits count.
#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::huge_models_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr int64_t kTera = int64_t{1} << 40;

Model adamw_model(int64_t rows, int64_t cols) {
  Model model = model_of({matrix_tensor("embedding", rows, cols)});
  model.tensors[0].matrix_rule = false;
  return model;
}

TEST(HugeModels, ATensorOfATeraElements) {
  for (const char* strategy : {"balanced", "replicated", "megatron"}) {
    const Plan plan =
        plan_of(adamw_model(kTera, 1), "dp=8", with_strategy(strategy));
    EXPECT_THAT(validate(plan), IsEmpty());
    for (const RankCost& rank : predict(plan)) {
      EXPECT_EQ(rank.memory.parameters, Bytes(2 * kTera));
      EXPECT_EQ(rank.memory.gradients, Bytes(4 * kTera));
    }
  }
}

TEST(HugeModels, AMatrixWhoseFlopsCannotBeCounted) {
  EXPECT_THAT([] { plan_of(squares({1 << 20}), "dp=8"); },
              ThrowsMessage<UsageError>(HasSubstr("1048576x1048576")));
}

// 2^62 elements can be counted, their bytes cannot.
TEST(HugeModels, ATensorWhoseBytesCannotBeCounted) {
  for (const char* strategy : {"balanced", "replicated", "megatron"}) {
    EXPECT_THROW(plan_of(adamw_model(kTera, int64_t{1} << 22), "dp=8",
                         with_strategy(strategy)),
                 UsageError)
        << strategy;
  }
}

// Each tensor is small enough, all together are not.
TEST(HugeModels, TensorsWhoseSumCannotBeCounted) {
  Model model;
  for (int i = 0; i < 40; ++i) {
    model.tensors.push_back(
        adamw_model(kTera, int64_t{1} << 18).tensors.front());
    model.tensors.back().name = cat("t", i);
  }
  EXPECT_THROW(plan_of(model, "dp=8"), UsageError);
}

// Everybody's share is counted, but not what a million ranks send each other.
TEST(HugeModels, TrafficThatCannotBeCounted) {
  EXPECT_THROW(plan_of(adamw_model(kTera, 1 << 10), "dp=65536",
                       with_strategy("replicated")),
               UsageError);
}

}  // namespace
}  // namespace canzona::plan::huge_models_test
