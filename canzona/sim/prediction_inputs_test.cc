#include "canzona/sim/prediction_inputs.h"

#include <gmock/gmock.h>

#include "canzona/shapes/read_model.h"

namespace canzona::sim::prediction_inputs_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// What is predicted on qwen3-8b, unless a test changes it.
struct Prediction {
  Model model = read_model("qwen3-8b", {});
  Mesh mesh = parse_mesh("dp=8");
  std::string rule = "muon";
  CostBasis cost = {.seconds_per_tick = 1 / 400e12};
  Links links = {};
  Workload work = {.compute = {.tokens = 4096,
                               .length = 4096,
                               .width = 4096,
                               .flops_per_second = 400e12}};

  PredictionBasis basis() const {
    return {model, mesh, rule, cost, links, work};
  }
  std::vector<std::string> gaps() const { return known_gaps(basis()); }
};

TEST(PredictionInputs, NameRatesLinksAndRules) {
  Prediction p;
  EXPECT_EQ(describe_inputs(p.basis()),
            "400 Tflop/s nominal; links 400 and 50 GB/s nominal; rules at 400 "
            "Tflop/s, not measured");
  p.work.rates = "a card: 3 Tflop/s given";
  p.links.nominal = false;
  p.cost.source = "a card, measured";
  EXPECT_EQ(describe_inputs(p.basis()),
            "a card: 3 Tflop/s given; links 400 and 50 GB/s given; rules as "
            "measured on a card, measured");
  p.rule = "adamw";
  EXPECT_THAT(describe_inputs(p.basis()), AllOf(Not(HasSubstr("rules"))));
  p.work.measured.resize(3);
  EXPECT_THAT(describe_inputs(p.basis()), StartsWith("modules as measured"));
}

TEST(KnownGaps, AreNoneForDenseDataParallelMuon) {
  EXPECT_THAT(Prediction().gaps(), IsEmpty());
}

TEST(KnownGaps, NameDecompositionsUnlessTheyWereMeasured) {
  Prediction p;
  for (const char* rule : {"soap", "shampoo"}) {
    p.rule = rule;
    EXPECT_THAT(p.gaps(), ElementsAre(AllOf(StartsWith(rule),
                                            HasSubstr("canzona calibrate"))));
  }
  p.cost.source = "a card, measured";
  EXPECT_THAT(p.gaps(), IsEmpty());
}

TEST(KnownGaps, NameAxesThatAreNotModelled) {
  Prediction p;
  p.mesh = parse_mesh("dp=2,cp=2,pp=2");
  EXPECT_THAT(p.gaps(), ElementsAre(StartsWith("cp:"), StartsWith("pp:")));
}

// 36 layers of 128 K tokens × 4096 against 7.6e9 weights: 72 %.
TEST(KnownGaps, NameAttentionThatCountsAsProducts) {
  Prediction p;
  p.work.compute.length = 131'072;
  EXPECT_THAT(p.gaps(), ElementsAre(StartsWith("attention: 72 %")));
  p.work.compute.attention_flops_per_second = 200e12;
  EXPECT_THAT(p.gaps(), IsEmpty());
}

}  // namespace
}  // namespace canzona::sim::prediction_inputs_test
