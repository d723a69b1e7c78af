#include "canzona/rules/shampoo/facts.h"

#include <gmock/gmock.h>

#include <map>

#include "canzona/base/error.h"

namespace canzona {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Shape = std::vector<int64_t>;

ShampooFacts with_max_dim(const char* max_dim) {
  return ShampooFacts(RuleOptions{{"max_preconditioner_dim", max_dim}});
}

std::map<std::string, Shape> shapes(const std::vector<StateFact>& states) {
  std::map<std::string, Shape> shapes;
  for (const StateFact& state : states) shapes[state.name] = state.shape;
  return shapes;
}

int64_t total_bytes(const std::vector<StateFact>& states) {
  Bytes total;
  for (const StateFact& state : states) total += state.bytes();
  return total.value();
}

// 6x4: statistics 6²·4 + 6·4² = 240, roots 480; refresh 18·4·(6³ + 4³).
TEST(ShampooFacts, CountsASmallMatrixWhole) {
  const Work work = ShampooFacts({}).work({6, 4});
  EXPECT_EQ(work.every_step, Flops(720));
  EXPECT_EQ(work.refresh, Flops(20'160));
  EXPECT_THAT(shapes(ShampooFacts({}).states({6, 4})),
              ElementsAre(Pair("L", Shape{1, 6, 6}), Pair("R", Shape{1, 4, 4}),
                          Pair("filtered_grad", Shape{6, 4}),
                          Pair("grafting_avg_sq", Shape{6, 4}),
                          Pair("inv_L", Shape{1, 6, 6}),
                          Pair("inv_R", Shape{1, 4, 4})));
}

// 5x3 at 2 is 2x2, 2x1, 2x2, 2x1, 1x2, 1x1. a²b + ab²: 16, 6, 16, 6, 6, 2.
// a³ + b³: 16, 9, 16, 9, 9, 2. a² + b²: 8, 5, 8, 5, 5, 2.
TEST(ShampooFacts, SumsOverBlocks) {
  const ShampooFacts shampoo = with_max_dim("2");
  EXPECT_EQ(shampoo.work({5, 3}).every_step, Flops(156));
  EXPECT_EQ(shampoo.work({5, 3}).refresh, Flops(4'392));
  EXPECT_EQ(total_bytes(shampoo.states({5, 3})), 384);
}

TEST(ShampooFacts, StacksFactorsOfEqualSize) {
  EXPECT_THAT(
      shapes(with_max_dim("2").states({5, 3})),
      ElementsAre(
          Pair("L", Shape{4, 2, 2}), Pair("L_edge", Shape{2, 1, 1}),
          Pair("R", Shape{3, 2, 2}), Pair("R_edge", Shape{3, 1, 1}),
          Pair("filtered_grad", Shape{5, 3}),
          Pair("grafting_avg_sq", Shape{5, 3}), Pair("inv_L", Shape{4, 2, 2}),
          Pair("inv_L_edge", Shape{2, 1, 1}), Pair("inv_R", Shape{3, 2, 2}),
          Pair("inv_R_edge", Shape{3, 1, 1})));
}

// 5 x 25 blocks of 1024: 6·1024³ a step and 144·1024³ a refresh for each.
TEST(ShampooFacts, CountsTheGateOfQwen3_32b) {
  const Work work = ShampooFacts({}).work({5120, 25600});
  EXPECT_EQ(work.every_step, Flops(805'306'368'000));
  EXPECT_EQ(work.refresh, Flops(19'327'352'832'000));
  EXPECT_EQ(total_bytes(ShampooFacts({}).states({5120, 25600})), 3'145'728'000);
}

TEST(ShampooFacts, CountsUnevenBlocks) {
  EXPECT_EQ(ShampooFacts({}).work({1536, 4096}).every_step,
            Flops(35'433'480'192));
  EXPECT_EQ(ShampooFacts({}).work({1536, 4096}).refresh,
            Flops(966'367'641'600));
  EXPECT_EQ(ShampooFacts({}).work({2500, 1024}).refresh,
            Flops(393'195'926'016));
}

// A vector has one factor and an inverse square root: three products.
TEST(ShampooFacts, DropsASideOfOne) {
  const ShampooFacts shampoo = with_max_dim("2");
  EXPECT_EQ(shampoo.work({1, 5}).every_step, Flops(27));
  EXPECT_EQ(shampoo.work({1, 5}).refresh, Flops(918));
  EXPECT_EQ(shampoo.work({5, 1}).refresh, Flops(918));
  EXPECT_THAT(
      shapes(shampoo.states({1, 5})),
      ElementsAre(Pair("R", Shape{2, 2, 2}), Pair("R_edge", Shape{1, 1, 1}),
                  Pair("filtered_grad", Shape{1, 5}),
                  Pair("grafting_avg_sq", Shape{1, 5}),
                  Pair("inv_R", Shape{2, 2, 2}),
                  Pair("inv_R_edge", Shape{1, 1, 1})));
  EXPECT_EQ(total_bytes(shampoo.states({5, 1})), 112);
  EXPECT_EQ(total_bytes(shampoo.states({1, 1})), 16);
}

TEST(ShampooFacts, KeepsEverythingWithTheOwner) {
  for (const StateFact& state : ShampooFacts({}).states({3000, 2000})) {
    EXPECT_EQ(state.lives, Lives::kWithOwner) << state.name;
  }
}

TEST(ShampooFacts, CountsIterations) {
  const ShampooFacts shampoo(RuleOptions{{"root_iterations", "1"}});
  EXPECT_EQ(shampoo.work({10, 10}).refresh, Flops(8'000));
  EXPECT_EQ(shampoo.algorithm({10, 10}), "newton");
}

TEST(ShampooFacts, CountsHugeMatricesWithoutWalking) {
  const ShampooFacts shampoo({});
  EXPECT_NO_THROW(shampoo.states({int64_t{1} << 40, 2}));
  EXPECT_EQ(shampoo.work({int64_t{1} << 36, 1}).every_step,
            Flops(3 * (int64_t{1} << 46)));
  // 2^80 blocks of one element.
  EXPECT_THROW(with_max_dim("1").states({int64_t{1} << 40, int64_t{1} << 40}),
               UsageError);
}

TEST(ShampooFacts, OptionsInForceAreAllNamed) {
  EXPECT_EQ(ShampooFacts({}).options(),
            (RuleOptions{{"max_preconditioner_dim", "1024"},
                         {"phases", "1"},
                         {"precondition_frequency", "10"},
                         {"root_iterations", "18"}}));
  EXPECT_EQ(
      ShampooFacts(RuleOptions{{"precondition_frequency", "50"}}).period(), 50);
  EXPECT_THROW(ShampooFacts(RuleOptions{{"phases", "11"}}), UsageError);
}

}  // namespace
}  // namespace canzona
