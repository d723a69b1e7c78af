#include "canzona/rules/muon/facts.h"

#include <gmock/gmock.h>

namespace canzona::rules::muon_coefficients_test {
namespace {

using ::testing::HasSubstr;

std::vector<Coefficients> usual(std::string_view name) {
  const CoefficientSet& set = coefficient_set(name);
  return unrolled(set.steps, set.usual_steps, Overrun::kLast);
}

// Computed in fp64 by an independent program.
struct Mapped {
  const char* set;
  double one, half, tenth, hundredth;
};
class EveryMap : public testing::TestWithParam<Mapped> {};

TEST_P(EveryMap, AgreesWithKnownValues) {
  const Mapped& m = GetParam();
  const std::vector<Coefficients> steps = usual(m.set);
  EXPECT_NEAR(composed(steps, 1), m.one, 1e-11);
  EXPECT_NEAR(composed(steps, 0.5), m.half, 1e-11);
  EXPECT_NEAR(composed(steps, 0.1), m.tenth, 1e-11);
  EXPECT_NEAR(composed(steps, 0.01), m.hundredth, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(
    CoefficientSets, EveryMap,
    testing::Values(Mapped{"simple", 0.696436409470, 0.765438530454,
                           0.712120081658, 0.698917063322},
                    Mapped{"quintic", 0.978345560294, 0.985869354097,
                           1.019049888747, 1.018025224968},
                    Mapped{"polar_express", 1.027297313794, 0.933330403935,
                           0.874442129159, 1.066023561398},
                    Mapped{"qwen_express", 0.887034289201, 1.107112623959,
                           1.021489079595, 1.099318616133},
                    Mapped{"cans", 1.005069424977, 1.096414458966,
                           0.916308780136, 1.113169227642},
                    Mapped{"aol", -0.993521226185, 1.007487372140,
                           1.003879347131, 0.865884422610},
                    Mapped{"deepseekv4", 1.000014309583, 1.000163228693,
                           1.000060706348, 1.000019161670},
                    Mapped{"cubic5", 0.774106046454, 1.097071805308,
                           0.801990201988, 1.021623079422}),
    [](const auto& test) { return std::string(test.param.set); });

TEST(CoefficientSets, PolarDionStartsFromALargerNorm) {
  EXPECT_NEAR(composed(usual("polar-dion"), 1 / 1.02), 0.903537420231, 1e-11);
  EXPECT_EQ(coefficient_set("polar-dion").norm_factor, 1.02);
}

// Sets without a hazard neither reverse a direction nor blow it up, even where
// rounding has lifted it above the norm.
TEST(CoefficientSets, EverySafeSetHasRoomAboveOne) {
  for (const CoefficientSet& set : coefficient_sets()) {
    if (!set.hazard.empty()) continue;
    std::vector<Coefficients> steps = usual(set.name);
    const double f = set.norm_factor;
    steps[0].a /= f;
    steps[0].b /= f * f * f;
    steps[0].c /= f * f * f * f * f;
    const double room = set.name == "polar_express" ? 1.0109 : 1.0199;
    for (double x = 0.0005; x <= room; x += 0.0005) {
      EXPECT_GT(composed(steps, x), 0) << set.name << " at " << x;
      EXPECT_LT(composed(steps, x), 1.5) << set.name << " at " << x;
    }
  }
}

TEST(FirstFault, FindsTheKnownOnes) {
  EXPECT_THAT(first_fault(usual("aol")), HasSubstr("0.88"));
  EXPECT_THAT(first_fault(usual("cans")), HasSubstr("becomes"));
  EXPECT_THAT(first_fault(usual("cubic5")), HasSubstr("changes its sign"));
  EXPECT_EQ(first_fault(usual("simple")), "");
  EXPECT_EQ(first_fault(usual("quintic")), "");
}

TEST(Unrolled, RepeatsTheLastOrAll) {
  const std::vector<Coefficients> set = {{1, 0, 0}, {2, 0, 0}};
  EXPECT_EQ(unrolled(set, 4, Overrun::kLast)[3].a, 2);
  EXPECT_EQ(unrolled(set, 4, Overrun::kLast)[2].a, 2);
  EXPECT_EQ(unrolled(set, 4, Overrun::kCycle)[2].a, 1);
  EXPECT_EQ(unrolled(set, 1, Overrun::kCycle).size(), 1U);
}

}  // namespace
}  // namespace canzona::rules::muon_coefficients_test
