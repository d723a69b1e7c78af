#include "canzona/rules/adamw/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::adamw_facts_test {
namespace {

TEST(AdamWFacts, IsElementWise) {
  const AdamWFacts adamw({});
  EXPECT_FALSE(adamw.needs_whole_matrix());
  EXPECT_EQ(adamw.gather_bytes_per_element(), 0);
  EXPECT_EQ(adamw.scatter_bytes_per_element(), 0);
  EXPECT_EQ(adamw.algorithm({3, 5}), "elementwise");
}

TEST(AdamWFacts, TakesFourteenFlopsPerElement) {
  EXPECT_EQ(AdamWFacts({}).work({3, 5}).every_step, Flops(210));
  EXPECT_EQ(AdamWFacts({}).work({3, 5}).refresh, Flops(0));
}

TEST(AdamWFacts, KeepsTwoMomentsWithTheShard) {
  const auto states = AdamWFacts({}).states({151936, 5120});
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[0].name, "exp_avg");
  EXPECT_EQ(states[1].name, "exp_avg_sq");
  for (const StateFact& state : states) {
    EXPECT_EQ(state.lives, Lives::kWithShard);
    EXPECT_EQ(state.bytes(), Bytes(3'111'649'280));
  }
}

TEST(AdamWFacts, HasTheOptionsOfTheReference) {
  EXPECT_EQ(AdamWFacts({}).options(),
            (RuleOptions{{"beta1", "0.9"},
                         {"beta2", "0.999"},
                         {"decay_form", "decoupled"},
                         {"epsilon", "1e-08"},
                         {"epsilon_mode", "corrected"},
                         {"learning_rate", "0.001"},
                         {"preset", "torch"},
                         {"weight_decay", "0.01"}}));
  EXPECT_THROW(AdamWFacts(RuleOptions{{"steps", "5"}}), UsageError);
}

}  // namespace
}  // namespace canzona::rules::adamw_facts_test
