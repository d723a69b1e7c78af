#include "canzona/model/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

namespace canzona::model::experts_routing_test {
namespace {

constexpr ExpertSizes kSizes = {.tokens = 3,
                                .length = 3,
                                .hidden = 1,
                                .experts = 4,
                                .choices = 2,
                                .ffn = 1};

class RoutingTest : public testing::Test {
 protected:
  RoutingTest() {
    Cutter count(nullptr);
    take_routing<float>(count, kSizes);
    memory_.resize(static_cast<size_t>(count.bytes()));
    Cutter cutter(memory_.data());
    routing_ = take_routing<float>(cutter, kSizes);
  }
  void route_logits(const std::vector<float>& logits) {
    std::ranges::copy(logits, routing_.probabilities);
    route(kSizes, routing_);
  }
  template <class T>
  std::vector<T> list(const T* from, int64_t count) const {
    return {from, from + count};
  }

  std::vector<std::byte> memory_;
  Routing<float> routing_;
};

TEST_F(RoutingTest, TakesTheMostLikelyFirst) {
  route_logits({0, 3, 1, 2,  //
                5, 0, 0, 4,  //
                0, 0, 2, 1});
  EXPECT_THAT(list(routing_.chosen, 6), testing::ElementsAre(1, 3, 0, 3, 2, 3));
  EXPECT_THAT(list(routing_.counts, 4), testing::ElementsAre(1, 1, 1, 3));
  // By expert, then by token.
  EXPECT_THAT(list(routing_.places, 6), testing::ElementsAre(1, 3, 0, 4, 2, 5));
  EXPECT_FLOAT_EQ(routing_.weights[0], 1 / (1 + std::exp(-1.0F)));
  EXPECT_FLOAT_EQ(routing_.weights[0] + routing_.weights[1], 1);
}

TEST_F(RoutingTest, LargeLogitsDoNotOverflow) {
  route_logits({1000, 999, -1000, 0,             //
                -1e30F, -1e30F, -1e30F, -1e30F,  //
                3e38F, 0, 0, 0});
  EXPECT_THAT(list(routing_.chosen, 6), testing::ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(list(routing_.weights, 6),
              testing::Each(testing::AllOf(testing::Ge(0), testing::Le(1))));
}

// A run that has gone wrong must still reach the check that reports it.
TEST_F(RoutingTest, NumbersThatAreNoneGiveDifferentExperts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  route_logits({kNan, kNan, kNan, kNan,  //
                0, kNan, 1, kInf,        //
                -kInf, -kInf, kInf, kInf});
  for (int64_t t = 0; t < 3; ++t) {
    const auto chosen = list(routing_.chosen + 2 * t, 2);
    EXPECT_EQ(std::set<int32_t>(chosen.begin(), chosen.end()).size(), 2u);
    EXPECT_THAT(chosen,
                testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(4))));
  }
  const auto counts = list(routing_.counts, 4);
  EXPECT_EQ(counts[0] + counts[1] + counts[2] + counts[3], 6);
}

TEST_F(RoutingTest, AnEvenBalanceIsOne) {
  route_logits({2, 2, 2, 2,  //
                2, 2, 2, 2,  //
                2, 2, 2, 2});
  EXPECT_NEAR(*routing_.balance, 1, 1e-7);
  route_logits({50, 49, 0, 0,  //
                50, 49, 0, 0,  //
                50, 49, 0, 0});
  EXPECT_NEAR(*routing_.balance, 2, 1e-6);  // all pairs at half of the experts
}

}  // namespace
}  // namespace canzona::model::experts_routing_test
