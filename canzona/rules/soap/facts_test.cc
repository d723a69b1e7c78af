#include "canzona/rules/soap/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::soap_facts_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Shape = std::vector<int64_t>;

// For a CPU, unless the options say otherwise.
SoapFacts soap(RuleOptions options) {
  options.try_emplace("device", "cpu");
  return SoapFacts(options);
}

std::vector<std::string> names(const std::vector<StateFact>& states) {
  std::vector<std::string> names;
  for (const StateFact& state : states) names.push_back(state.name);
  return names;
}

int64_t total_bytes(const std::vector<StateFact>& states) {
  Bytes total;
  for (const StateFact& state : states) total += state.bytes();
  return total.value();
}

Shape shape_of(const std::vector<StateFact>& states, const std::string& name) {
  for (const StateFact& state : states)
    if (state.name == name) return state.shape;
  return {};
}

// By hand: moments 2·5120·8192, L and Q_L 2·5120², R and Q_R 2·8192², two
// counters; four bytes per element.
TEST(SoapFacts, KeepsEverythingWithTheOwner) {
  const auto states = SoapFacts({}).states({5120, 8192});
  EXPECT_THAT(names(states), ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L",
                                         "R", "Q_R", "refresh_failures"));
  for (const StateFact& state : states) {
    EXPECT_EQ(state.lives, Lives::kWithOwner);
    const bool is_basis = state.name.starts_with("Q_");
    EXPECT_EQ(state.initially,
              is_basis ? Initially::kIdentity : Initially::kZero);
  }
  EXPECT_EQ(states[2].shape, (Shape{5120, 5120}));
  EXPECT_EQ(states[4].shape, (Shape{8192, 8192}));
  EXPECT_EQ(states[6].shape, (Shape{2}));
  EXPECT_EQ(total_bytes(states), 1'082'130'440);
}

// A refresh of side d with e across: 14/3 d³ for product and QR, and 2d²e +
// 2d²·min(d, e) to move the first moment.
TEST(SoapFacts, CountsBothSides) {
  const RuleWork work = soap({}).work({5120, 8192});
  EXPECT_EQ(work.every_step, Flops(2'791'728'742'400));
  EXPECT_EQ(work.refresh, Flops(5'264'198'249'130));
}

TEST(SoapFacts, SquareMatricesCostTenCubesAStep) {
  EXPECT_EQ(soap({}).work({100, 100}).every_step, Flops(10'000'000));
}

// 26/3 d³ per side: 8.67, 69.33 and 234 for d of 1, 2 and 3.
TEST(SoapFacts, RoundsARefreshToTheNearestFlop) {
  EXPECT_EQ(soap({}).work({1, 1}).refresh, Flops(18));
  EXPECT_EQ(soap({}).work({2, 2}).refresh, Flops(138));
  EXPECT_EQ(soap({}).work({3, 3}).refresh, Flops(468));
}

// 25600 > 10000: no R, and so neither rotation nor statistics of the columns.
TEST(SoapFacts, LeavesOutTheFactorOfALongSide) {
  const SoapFacts facts = soap({});
  EXPECT_THAT(
      names(facts.states({5120, 25600})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "refresh_failures"));
  EXPECT_EQ(total_bytes(facts.states({5120, 25600})), 1'258'291'204);
  EXPECT_EQ(facts.work({5120, 25600}).every_step, Flops(3'355'443'200'000));
  EXPECT_EQ(facts.work({5120, 25600}).refresh, Flops(2'236'962'133'333));
  EXPECT_THAT(
      names(facts.states({25600, 5120})),
      ElementsAre("exp_avg", "exp_avg_sq", "R", "Q_R", "refresh_failures"));
  EXPECT_EQ(facts.work({25600, 5120}).every_step, Flops(3'355'443'200'000));
  EXPECT_EQ(facts.algorithm({25600, 5120}), "qr");
}

TEST(SoapFacts, KeepsTheFactorOfASideAtTheLimit) {
  EXPECT_THAT(
      names(soap({{"max_preconditioner_dim", "8"}}).states({8, 9})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "refresh_failures"));
}

TEST(SoapFacts, LeavesOutTheFactorsOfIgnoredDims) {
  const SoapFacts right = soap({{"ignored_dims", "0"}});
  EXPECT_THAT(
      names(right.states({6, 4})),
      ElementsAre("exp_avg", "exp_avg_sq", "R", "Q_R", "refresh_failures"));
  // Only the side of 4: 5·4²·6.
  EXPECT_EQ(right.work({6, 4}).every_step, Flops(480));
  EXPECT_EQ(soap({{"ignored_dims", "0,1"}}).algorithm({6, 4}), "adam");
  EXPECT_THAT(
      names(soap({{"ignored_dims", "0"}, {"precondition_1d", "on"}})
                .tensor_states({6})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "refresh_failures"));
}

TEST(SoapFacts, IsAdamWithoutFactors) {
  const SoapFacts facts = soap({{"max_preconditioner_dim", "8"}});
  EXPECT_EQ(facts.algorithm({9, 9}), "adam");
  EXPECT_THAT(names(facts.states({9, 9})),
              ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_EQ(facts.work({9, 9}).every_step, Flops(14 * 9 * 9));
  EXPECT_EQ(facts.work({9, 9}).refresh, Flops(0));
}

TEST(SoapFacts, RefreshesEveryTenStepsAtOnce) {
  const SoapFacts facts({});
  EXPECT_EQ(facts.period(), 10);
  EXPECT_EQ(facts.phases(), 1);
}

TEST(SoapFacts, SpreadsRefreshesOverAtMostAPeriod) {
  EXPECT_EQ(soap({{"phases", "10"}}).phases(), 10);
  EXPECT_THROW(soap({{"phases", "11"}}), UsageError);
  EXPECT_THROW(soap({{"precondition_frequency", "0"}}), UsageError);
}

TEST(SoapFacts, KeepsOnlyWhatTheOptionsUse) {
  EXPECT_THAT(names(soap({{"beta1", "0"}, {"kl", "on"}}).states({2, 3})),
              ElementsAre("exp_avg_sq", "L", "Q_L", "eigenvalues_L", "R", "Q_R",
                          "eigenvalues_R", "refresh_failures"));
  EXPECT_THAT(
      names(soap({{"preset", "meta"}, {"grafting", "adam"}}).states({2, 3})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "R", "Q_R",
                  "grafting_avg_sq", "refresh_failures"));
  EXPECT_THAT(
      names(soap({{"preset", "meta"}, {"grafting", "sgd"}}).states({2, 3})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "R", "Q_R",
                  "refresh_failures"));
}

TEST(SoapFacts, TensorsHaveAFactorForEachAxis) {
  const auto states = SoapFacts({}).tensor_states({3, 4, 2});
  EXPECT_THAT(names(states),
              ElementsAre("exp_avg", "exp_avg_sq", "F_0", "Q_0", "F_1", "Q_1",
                          "F_2", "Q_2", "refresh_failures"));
  EXPECT_EQ(shape_of(states, "exp_avg"), (Shape{3, 4, 2}));
  EXPECT_EQ(shape_of(states, "F_1"), (Shape{4, 4}));
  EXPECT_EQ(shape_of(states, "refresh_failures"), (Shape{3}));
}

TEST(SoapFacts, VectorsHaveAFactorIfAsked) {
  EXPECT_THAT(names(SoapFacts({}).tensor_states({5})),
              ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(
      names(soap({{"precondition_1d", "on"}}).tensor_states({5})),
      ElementsAre("exp_avg", "exp_avg_sq", "L", "Q_L", "refresh_failures"));
}

TEST(SoapFacts, MatricesAndTensorsOfTwoAxesAreTheSame) {
  const auto matrix = SoapFacts({}).states({4, 6});
  const auto tensor = SoapFacts({}).tensor_states({4, 6});
  ASSERT_EQ(names(matrix), names(tensor));
  for (size_t i = 0; i < matrix.size(); ++i)
    EXPECT_EQ(matrix[i].shape, tensor[i].shape);
}

// 5x3 cut at 2 is 2x2, 2x1, 2x2, 2x1, 1x2, 1x1.
TEST(SoapFacts, StacksFactorsOfBlocks) {
  const auto states =
      soap({{"preset", "meta"}, {"max_preconditioner_dim", "2"}})
          .states({5, 3});
  EXPECT_EQ(shape_of(states, "L"), (Shape{4, 2, 2}));
  EXPECT_EQ(shape_of(states, "L_edge"), (Shape{2, 1, 1}));
  EXPECT_EQ(shape_of(states, "Q_R"), (Shape{3, 2, 2}));
  EXPECT_EQ(shape_of(states, "Q_R_edge"), (Shape{3, 1, 1}));
  EXPECT_EQ(shape_of(states, "exp_avg_sq"), (Shape{5, 3}));
  EXPECT_EQ(shape_of(states, "refresh_failures"), (Shape{12}));
}

// a²b + ab² over the blocks: 16, 6, 16, 6, 6, 2; a³ + b³: 16, 9, 16, 9, 9, 2.
// The first moment in the original space takes two more products for each.
TEST(SoapFacts, SumsOverBlocks) {
  const RuleWork work = soap({{"preset", "meta"},
                              {"max_preconditioner_dim", "2"},
                              {"refresh", "eigh"}})
                            .work({5, 3});
  EXPECT_EQ(work.every_step, Flops(7 * 52));
  EXPECT_EQ(work.refresh, Flops(9 * 61));
}

// Merged into a vector of 6: one factor and no other side.
TEST(SoapFacts, CountsMergedMatricesAsVectors) {
  const RuleWork work = soap({{"merge_dims", "on"}}).work({3, 2});
  EXPECT_EQ(work.every_step, Flops(5 * 36));
  EXPECT_EQ(work.refresh, Flops(14 * 72 + 2 * 36 + 2 * 36));
}

TEST(SoapFacts, CountsWhatTheOptionsCost) {
  const auto refresh = [](const RuleOptions& options) {
    return soap(options).work({30, 30}).refresh.value() / (2 * 9000);
  };
  // In thirds of 30³, of which the first moment takes 12.
  EXPECT_EQ(refresh({}), 14 + 12);
  EXPECT_EQ(refresh({{"momentum_basis", "original"}}), 14);
  EXPECT_EQ(refresh({{"beta1", "0"}}), 14);
  EXPECT_EQ(refresh({{"beta1", "0"}, {"power_steps", "3"}}), 42);
  EXPECT_EQ(refresh({{"beta1", "0"}, {"sort", "after"}}), 20);
  EXPECT_EQ(refresh({{"beta1", "0"}, {"refresh", "cholesky_qr"}}), 27);
  EXPECT_EQ(refresh({{"beta1", "0"}, {"refresh", "eigh"}}), 27);
  const auto step = [](const RuleOptions& options) {
    return soap(options).work({30, 30}).every_step.value() / (2 * 27000);
  };
  EXPECT_EQ(step({}), 5);
  EXPECT_EQ(step({{"momentum_basis", "original"}}), 7);
  EXPECT_EQ(step({{"kl", "on"}}), 7);
}

TEST(SoapFacts, CountsHugeMatricesWithoutWalking) {
  const SoapFacts facts =
      soap({{"preset", "meta"}, {"max_preconditioner_dim", "1"}});
  EXPECT_EQ(facts.work({int64_t{1} << 40, 2}).every_step,
            Flops(7 * (int64_t{1} << 42)));
  EXPECT_THROW(facts.states({int64_t{1} << 40, int64_t{1} << 40}), UsageError);
  EXPECT_EQ(soap({}).algorithm({int64_t{1} << 40, int64_t{1} << 40}), "adam");
}

TEST(SoapFacts, NamesTheTensorItRefuses) {
  EXPECT_THAT(
      [] {
        SoapFacts({}).tensor_states({2, -3});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("tensor 2x-3"), HasSubstr("negative"))));
  EXPECT_THAT([] { SoapFacts({}).tensor_states(Shape(9, 1)); },
              ThrowsMessage<UsageError>(HasSubstr("more than 8 axes")));
}

TEST(SoapFacts, GathersTwoFieldsIfFactorsDoNotSeeTheDecay) {
  EXPECT_EQ(SoapFacts({}).gather_fields(), 1);
  EXPECT_EQ(soap({{"decay_form", "l2"}}).gather_fields(), 1);
  EXPECT_EQ(
      soap({{"decay_form", "l2"}, {"l2_in_factors", "off"}}).gather_fields(),
      2);
  EXPECT_EQ(soap({{"decay_form", "l2"},
                  {"l2_in_factors", "off"},
                  {"weight_decay", "0"}})
                .gather_fields(),
            1);
}

// Three rounds of Cholesky QR take 21 thirds of d³ where Householder's takes 8.
TEST(SoapFacts, FollowTheDevice) {
  const SoapFacts cpu = soap({});
  const SoapFacts cuda = soap({{"device", "cuda"}});
  EXPECT_EQ(cpu.algorithm({30, 30}), "qr");
  EXPECT_EQ(cuda.algorithm({30, 30}), "cholesky_qr");
  EXPECT_EQ(cuda.work({30, 30}).refresh - cpu.work({30, 30}).refresh,
            Flops(2 * 13 * 9000));
  EXPECT_EQ(cuda.work({30, 30}).every_step, cpu.work({30, 30}).every_step);
  EXPECT_EQ(cpu.options().at("products"), "fp32");
  EXPECT_EQ(cuda.options().at("products"), "bf16x3");
  EXPECT_EQ(soap({{"device", "cuda"}, {"products", "fp32"}, {"refresh", "qr"}})
                .work({30, 30})
                .refresh,
            cpu.work({30, 30}).refresh);
}

// By hand: 5120 x 25600 has the factor L alone; eight strips of 3200 columns.
// A strip: 5d²w per step, of which d²w for the sum; in a refresh 4d²w, because
// a strip is narrower than the factor. The head: 14/3 d³ in a refresh.
TEST(SoapFacts, CountsStripsOfTheSideWithoutAFactor) {
  const StripFacts facts = soap({{"strips", "8"}}).strips({5120, 25600});
  EXPECT_EQ(facts.strips, 8);
  EXPECT_EQ(facts.strip.value(), 419'430'400'000);
  EXPECT_EQ(facts.strip_sum.value(), 83'886'080'000);
  EXPECT_EQ(facts.head.value(), 0);
  EXPECT_EQ(facts.strip_refresh.value(), 335'544'320'000);
  EXPECT_EQ(facts.head_refresh.value(), 626'349'397'333);
  EXPECT_EQ(facts.segments, 1);
  EXPECT_EQ(facts.sum_elements, 5120 * 5121 / 2);
  EXPECT_EQ(facts.rounded_bytes, 4);
  EXPECT_EQ(facts.factor_bytes, 16 + 8 * 5120 + 4 * 5120 * 5120);
  EXPECT_EQ(facts.norm_bytes, 0);
  EXPECT_TRUE(facts.factors_at_refresh);
  EXPECT_EQ(soap({{"strips", "8"}}).strips({25600, 5120}), facts);
  const RuleWork work = soap({{"strips", "8"}}).work({5120, 25600});
  EXPECT_EQ(work.every_step.value(), 8 * facts.strip.value());
  EXPECT_EQ(work.refresh.value(),
            8 * facts.strip_refresh.value() + facts.head_refresh.value());
  EXPECT_FALSE(soap({{"strips", "8"}, {"precondition_frequency", "1"}})
                   .strips({5120, 25600})
                   .factors_at_refresh);
}

TEST(SoapFacts, ChoosesStripsByShapeAndOptions) {
  const auto strips = [](const RuleOptions& options, MatrixShape shape) {
    return soap(options).strips(shape).strips;
  };
  const RuleOptions four = {{"strips", "4"}}, automatic = {{"strips", "auto"}};
  EXPECT_EQ(strips({}, {5120, 25600}), 1);
  EXPECT_EQ(strips(four, {5120, 25600}), 4);
  EXPECT_EQ(strips(automatic, {5120, 25600}), 8);
  EXPECT_EQ(strips(automatic, {1024, 10001}), 4);
  EXPECT_EQ(strips(automatic, {1023, 25600}), 1);
  // Two factors, none, or blocks.
  EXPECT_EQ(strips(four, {5120, 8192}), 1);
  EXPECT_EQ(strips(four, {10240, 25600}), 1);
  EXPECT_EQ(strips({{"strips", "4"}, {"long_sides", "cut"}}, {5120, 25600}), 1);
  EXPECT_EQ(strips(four, {0, 25600}), 1);
  EXPECT_EQ(strips(four, {1, 25600}), 4);
  // The side without a factor is cut if it is the long one: the columns of a
  // square.
  const auto ignoring = [](const char* axis) {
    return RuleOptions{{"strips", "4"}, {"ignored_dims", axis}};
  };
  EXPECT_EQ(strips(ignoring("0"), {512, 1024}), 1);
  EXPECT_EQ(strips(ignoring("1"), {512, 1024}), 4);
  EXPECT_EQ(strips(ignoring("0"), {1024, 512}), 4);
  EXPECT_EQ(strips(ignoring("0"), {512, 512}), 1);
  EXPECT_EQ(strips(ignoring("1"), {512, 512}), 4);
}

TEST(SoapFacts, RefusesStripsOfWholeUpdates) {
  for (const RuleOptions& more : std::vector<RuleOptions>{
           {{"normalize_grads", "on"}},
           {{"max_update_rms", "1"}},
           {{"grafting", "sgd"}, {"momentum_basis", "original"}},
           {{"decay_form", "l2"}, {"l2_in_factors", "off"}}}) {
    RuleOptions options = more;
    options["strips"] = "2";
    EXPECT_THAT([&] { soap(options); }, ThrowsMessage<UsageError>(AllOf(
                                            HasSubstr("rule soap: strips=2"),
                                            HasSubstr("expected strips=1"))));
    options["strips"] = "auto";
    EXPECT_EQ(soap(options).strips({5120, 25600}).strips, 1);
  }
  EXPECT_THAT(
      [] {
        soap({{"strips", "3"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("strips")));
}

// Together members keep every element; the basis is with all of them.
TEST(SoapFacts, SharesStatesBetweenMembers) {
  const SoapFacts facts = soap({{"strips", "8"}, {"kl", "on"}});
  const auto names_of = [](const std::vector<TeamState>& states) {
    std::vector<std::string> names;
    for (const TeamState& state : states)
      names.push_back(state.in_matrix.name + (state.given ? "" : " copied"));
    return names;
  };
  const auto head = facts.team_states({25600, 5120}, 4, 0);
  EXPECT_THAT(names_of(head), ElementsAre("exp_avg", "exp_avg_sq", "R", "Q_R",
                                          "eigenvalues_R", "refresh_failures"));
  const auto last = facts.team_states({25600, 5120}, 4, 3);
  EXPECT_THAT(names_of(last),
              ElementsAre("exp_avg", "exp_avg_sq", "Q_R copied"));
  EXPECT_EQ(last[1].own.shape, (Shape{6400, 5120}));
  EXPECT_EQ(last[1].in_matrix.shape, (Shape{25600, 5120}));
  EXPECT_EQ(last[1].in_matrix.first, (Shape{19200, 0}));
  EXPECT_EQ(last[2].own.shape, (Shape{5120, 5120}));
  EXPECT_EQ(last[2].own.initially, Initially::kIdentity);
}

}  // namespace
}  // namespace canzona::rules::soap_facts_test
