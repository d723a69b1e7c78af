#include "canzona/rules/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::rules_facts_test {
namespace {

TEST(StateFact, CountsElementsAndBytes) {
  const StateFact state{"momentum", {3, 5}, "fp32", Lives::kWithShard};
  EXPECT_EQ(state.elements(), 15);
  EXPECT_EQ(state.bytes(), Bytes(60));
}

TEST(StateFact, TakesTwoBytesInBf16) {
  const StateFact state{"momentum", {3, 5}, "bf16", Lives::kWithShard};
  EXPECT_EQ(state.bytes(), Bytes(30));
}

TEST(StateFact, MayBeEmptyOrScalarOrStacked) {
  EXPECT_EQ((StateFact{"s", {}, "fp32"}).elements(), 1);
  EXPECT_EQ((StateFact{"s", {0, 7}, "fp32"}).bytes(), Bytes(0));
  EXPECT_EQ((StateFact{"s", {4, 3, 3}, "fp32"}).elements(), 36);
}

TEST(StateFact, IsEmptyBeforeItOverflows) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ((StateFact{"s", {huge, huge, 0}, "fp32"}).elements(), 0);
}

TEST(StateFact, RefusesWhatDoesNotFit) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THROW((StateFact{"s", {huge, huge}, "fp32"}).elements(), UsageError);
  // 2^62 elements fit in 64 bits, their bytes do not.
  const StateFact wide{"s", {huge, int64_t{1} << 22}, "fp32"};
  EXPECT_EQ(wide.elements(), int64_t{1} << 62);
  EXPECT_THROW(wide.bytes(), UsageError);
}

TEST(StateFact, RefusesAnUnknownDtypeAsOurMistake) {
  EXPECT_THROW((StateFact{"s", {1}, "fp7"}).bytes(), InternalError);
}

TEST(MatrixShape, ReadsAsRowsByColumns) {
  EXPECT_EQ(to_string(MatrixShape{5120, 25600}), "5120x25600");
}

}  // namespace
}  // namespace canzona::rules::rules_facts_test
