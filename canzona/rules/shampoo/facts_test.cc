#include "canzona/rules/shampoo/facts.h"

#include <gmock/gmock.h>

#include <map>

#include "canzona/base/error.h"

namespace canzona::rules::shampoo_facts_test {
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
  const RuleWork work = ShampooFacts({}).work({6, 4});
  EXPECT_EQ(work.every_step, Flops(720));
  EXPECT_EQ(work.refresh, Flops(20'160));
  EXPECT_THAT(
      shapes(ShampooFacts({}).states({6, 4})),
      ElementsAre(Pair("L", Shape{1, 6, 6}), Pair("R", Shape{1, 4, 4}),
                  Pair("filtered_grad", Shape{6, 4}),
                  Pair("grafting_avg_sq", Shape{6, 4}),
                  Pair("inv_L", Shape{1, 6, 6}), Pair("inv_R", Shape{1, 4, 4}),
                  Pair("refresh_failures", Shape{1, 2})));
}

// 5x3 cut at 2 is 2x2, 2x1, 2x2, 2x1, 1x2, 1x1. a²b + ab²: 16, 6, 16, 6, 6, 2.
// a³ + b³: 16, 9, 16, 9, 9, 2. a² + b²: 8, 5, 8, 5, 5, 2; twelve counters.
TEST(ShampooFacts, SumsOverBlocks) {
  const ShampooFacts shampoo = with_max_dim("2");
  EXPECT_EQ(shampoo.work({5, 3}).every_step, Flops(156));
  EXPECT_EQ(shampoo.work({5, 3}).refresh, Flops(4'392));
  EXPECT_EQ(total_bytes(shampoo.states({5, 3})), 432);
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
          Pair("inv_R_edge", Shape{3, 1, 1}),
          Pair("refresh_failures", Shape{6, 2})));
}

// 5 x 25 blocks of 1024: 6·1024³ per step and 144·1024³ per refresh, each.
TEST(ShampooFacts, CountsTheGateOfQwen3_32b) {
  const RuleWork work = ShampooFacts({}).work({5120, 25600});
  EXPECT_EQ(work.every_step, Flops(805'306'368'000));
  EXPECT_EQ(work.refresh, Flops(19'327'352'832'000));
  EXPECT_EQ(total_bytes(ShampooFacts({}).states({5120, 25600})), 3'145'729'000);
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
      ElementsAre(Pair("L", Shape{2, 2, 2}), Pair("L_edge", Shape{1, 1, 1}),
                  Pair("filtered_grad", Shape{1, 5}),
                  Pair("grafting_avg_sq", Shape{1, 5}),
                  Pair("inv_L", Shape{2, 2, 2}),
                  Pair("inv_L_edge", Shape{1, 1, 1}),
                  Pair("refresh_failures", Shape{3, 1})));
  EXPECT_EQ(total_bytes(shampoo.states({5, 1})), 124);
  EXPECT_EQ(total_bytes(shampoo.states({1, 1})), 20);
}

TEST(ShampooFacts, KeepsEverythingWithTheOwner) {
  for (const StateFact& state : ShampooFacts({}).states({3000, 2000})) {
    EXPECT_EQ(state.lives, Lives::kWithOwner) << state.name;
  }
}

TEST(ShampooFacts, KeepsAClassicMomentumWithTheShard) {
  const ShampooFacts shampoo(RuleOptions{{"classic_momentum", "0.9"}});
  const auto states = shampoo.states({6, 4});
  EXPECT_EQ(states.back().name, "momentum");
  EXPECT_EQ(states.back().shape, (Shape{6, 4}));
  EXPECT_EQ(states.back().lives, Lives::kWithShard);
  EXPECT_EQ(total_bytes(states),
            total_bytes(ShampooFacts({}).states({6, 4})) + 96);
}

// 6x4: statistics 6·4² = 96 and roots 192, for the right side only; the refresh
// takes Newton's 18·3 products for a square root.
TEST(ShampooFacts, CountsTheAxesThatHaveFactors) {
  const ShampooFacts right(RuleOptions{{"exponent", "0,0.5"}});
  EXPECT_EQ(right.work({6, 4}).every_step, Flops(288));
  EXPECT_EQ(right.work({6, 4}).refresh, Flops(18 * 3 * 64));
  EXPECT_THAT(
      shapes(right.states({6, 4})),
      ElementsAre(Pair("R", Shape{1, 4, 4}), Pair("filtered_grad", Shape{6, 4}),
                  Pair("grafting_avg_sq", Shape{6, 4}),
                  Pair("inv_R", Shape{1, 4, 4}),
                  Pair("refresh_failures", Shape{1, 1})));
  const ShampooFacts none(RuleOptions{{"exponent", "0,0"}});
  EXPECT_EQ(none.algorithm({6, 4}), "elementwise");
  EXPECT_EQ(none.algorithm({6, 1}), "newton");
}

// KL factors apply the other side's root again: 2·(6²·4 + 6·4²) = 480.
TEST(ShampooFacts, CountsWhatKlFactorsTake) {
  const ShampooFacts kl(RuleOptions{{"kl", "on"}});
  EXPECT_EQ(kl.work({6, 4}).every_step, Flops(720 + 480));
  EXPECT_EQ(kl.work({6, 1}).every_step,
            ShampooFacts({}).work({6, 1}).every_step);
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

TEST(ShampooFacts, KeepsWhatTheOptionsHaveAUseFor) {
  const auto kept = [](const RuleOptions& options) {
    std::vector<std::string> names;
    for (const StateFact& state : ShampooFacts(options).states({2, 3}))
      names.push_back(state.name);
    return names;
  };
  EXPECT_THAT(kept({{"beta1", "0"}, {"grafting", "sgd"}}),
              ElementsAre("L", "inv_L", "R", "inv_R", "refresh_failures"));
  EXPECT_THAT(kept({{"start_step", "never"}}),
              ElementsAre("filtered_grad", "grafting_avg_sq"));
  EXPECT_THAT(kept({{"exponent", "0"}, {"grafting", "none"}}),
              ElementsAre("filtered_grad"));
}

TEST(ShampooFacts, RootsBeginAsTheIdentityAndTheRestAsZero) {
  for (const StateFact& state : with_max_dim("2").states({5, 3})) {
    const bool root = state.name.substr(0, 4) == "inv_";
    EXPECT_EQ(state.initially, root ? Initially::kIdentity : Initially::kZero)
        << state.name;
  }
}

// A convolution kernel is 64 x 147; with merging off it keeps four axes.
TEST(ShampooFacts, TakesTensorsWhole) {
  const Shape dims = {64, 3, 7, 7};
  EXPECT_THAT(
      shapes(ShampooFacts({}).tensor_states(dims)),
      ElementsAre(Pair("L", Shape{1, 64, 64}), Pair("R", Shape{1, 147, 147}),
                  Pair("filtered_grad", dims), Pair("grafting_avg_sq", dims),
                  Pair("inv_L", Shape{1, 64, 64}),
                  Pair("inv_R", Shape{1, 147, 147}),
                  Pair("refresh_failures", Shape{1, 2})));
  const auto unmerged =
      shapes(ShampooFacts(RuleOptions{{"merge", "off"}}).tensor_states(dims));
  EXPECT_EQ(unmerged.at("F_1"), (Shape{1, 3, 3}));
  EXPECT_EQ(unmerged.at("inv_F_3"), (Shape{1, 7, 7}));
  EXPECT_EQ(unmerged.at("refresh_failures"), (Shape{1, 4}));
}

TEST(ShampooFacts, TakesVectorsAndNumbers) {
  EXPECT_EQ(shapes(ShampooFacts({}).tensor_states({5})).at("L"),
            (Shape{1, 5, 5}));
  EXPECT_EQ(shapes(ShampooFacts({}).tensor_states({})).at("L"),
            (Shape{1, 1, 1}));
}

// Meta's default: a small matrix is merged into a vector, with a vector's root.
TEST(ShampooFacts, CountsWhatMergingLeaves) {
  const ShampooFacts merged(RuleOptions{{"merge", "1"}});
  EXPECT_EQ(merged.work({6, 4}).every_step, Flops(3 * 24 * 24));
  EXPECT_EQ(merged.work({6, 4}).refresh, Flops(18 * 3 * 24 * 24 * 24));
  const ShampooFacts unmerged(RuleOptions{{"merge", "off"}});
  EXPECT_EQ(unmerged.work({1, 5}).every_step, Flops(3 * (5 + 25)));
}

// eigen: 9 d³ and a triangle. higher, order 3: 5 products in each of 18
// iterations, then 3 to check the result.
TEST(ShampooFacts, CountsTheRootThatIsAskedFor) {
  const ShampooFacts eigen(RuleOptions{{"root", "eigen"}});
  EXPECT_EQ(eigen.work({10, 10}).refresh, Flops(20'000));
  EXPECT_EQ(eigen.algorithm({10, 10}), "eigen");
  const ShampooFacts higher(RuleOptions{{"root", "higher"}});
  EXPECT_EQ(higher.work({10, 10}).refresh, Flops(2000 * (18 * 5 + 3)));
  const ShampooFacts pseudo(RuleOptions{{"root", "pseudo"}});
  EXPECT_EQ(pseudo.work({10, 10}).refresh, Flops(20'000));
  const ShampooFacts cans(RuleOptions{{"root", "cans"}, {"exponent", "0.5"}});
  EXPECT_EQ(cans.work({10, 10}).refresh, Flops(72'000));
  EXPECT_EQ(cans.algorithm({10, 10}), "cans");
  const ShampooFacts eighth(RuleOptions{{"exponent", "0.125"}});
  EXPECT_EQ(eighth.work({10, 10}).refresh, Flops(2000 * 18 * 5));
}

TEST(ShampooFacts, CountsTheIterationsThatAreUsualWhereMoreAreAllowed) {
  const ShampooFacts shampoo(RuleOptions{{"root_iterations", "100"}});
  EXPECT_EQ(shampoo.work({6, 4}).refresh, Flops(20'160));
}

TEST(ShampooFacts, IsElementwiseWithoutFactors) {
  const ShampooFacts shampoo(RuleOptions{{"start_step", "never"}});
  EXPECT_EQ(shampoo.work({6, 4}).every_step, Flops(14 * 24));
  EXPECT_EQ(shampoo.work({6, 4}).refresh, Flops(0));
  EXPECT_EQ(shampoo.algorithm({6, 4}), "elementwise");
}

TEST(ShampooFacts, TellsPeriodAndPhases) {
  EXPECT_EQ(
      ShampooFacts(RuleOptions{{"precondition_frequency", "50"}}).period(), 50);
  EXPECT_EQ(ShampooFacts(RuleOptions{{"phases", "5"}}).phases(), 5);
  EXPECT_EQ(ShampooFacts(RuleOptions{{"preset", "meta"}}).period(), 1);
  EXPECT_THROW(ShampooFacts(RuleOptions{{"phases", "11"}}), UsageError);
}

}  // namespace
}  // namespace canzona::rules::shampoo_facts_test
