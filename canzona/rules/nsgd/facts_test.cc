#include "canzona/rules/nsgd/facts.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::rules::nsgd_facts_test {
namespace {

TEST(NsgdFacts, KeepsItsMomentumWithTheShard) {
  const auto states = NsgdFacts({}).states({768, 2048});
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].lives, Lives::kWithShard);
  EXPECT_EQ(states[0].bytes(), Bytes(768 * 2048 * 4));
}

TEST(NsgdFacts, CountsThreeFlopsForEachElement) {
  EXPECT_EQ(NsgdFacts({}).work({5, 7}).every_step, Flops(105));
  EXPECT_EQ(NsgdFacts({}).work({0, 7}).every_step, Flops(0));
  EXPECT_TRUE(NsgdFacts({}).needs_whole_matrix());
}

TEST(NsgdFacts, RefusesMoreMomentumThanThereIs) {
  EXPECT_THROW(NsgdFacts(RuleOptions{{"momentum", "1.5"}}), UsageError);
}

}  // namespace
}  // namespace canzona::rules::nsgd_facts_test
