// Every form and precision that ships, on the real kernels, over the whole
// stress set.
#include <gtest/gtest.h>

#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/muon/test_stress.h"

namespace canzona::rules::stress_test {
namespace {

struct Worst {
  double singular_value = 0;
  std::string where;
};

PlainMatrix orthogonal(Engine& engine, const MuonFacts& facts,
                       const PlainMatrix& a) {
  const std::vector<float> in(a.values.begin(), a.values.end());
  std::vector<float> out(in.size());
  orthogonalize(engine, facts, matrices(in.data(), a.rows, a.cols),
                matrices(out.data(), a.rows, a.cols));
  PlainMatrix o(a.rows, a.cols);
  o.values.assign(out.begin(), out.end());
  return o;
}

Worst worst_of(Engine& engine, const MuonFacts& facts, int64_t m, int64_t n) {
  Worst worst;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    for (const StressCase& hard : stress_cases(m, n, seed)) {
      const double top =
          largest_singular_value(orthogonal(engine, facts, hard.matrix));
      if (!(top <= worst.singular_value)) worst = {top, hard.name};
    }
  return worst;
}

struct Variant {
  const char* form;
  const char* precision;
};
class StressSet : public testing::TestWithParam<Variant> {};

// Calls `check` for every set that ships in the variant's precision, with the
// rule's facts.
template <class Check>
void for_each_set(const Variant& variant, const Check& check) {
  for (const CoefficientSet& set : coefficient_sets()) {
    if (!set.hazard.empty()) continue;
    if (set.name == "cans" && std::string(variant.precision) == "bf16")
      continue;
    check(set, MuonFacts(RuleOptions{{"device", "cpu"},
                                     {"coefficients", std::string(set.name)},
                                     {"newton_schulz", variant.form},
                                     {"precision", variant.precision}}));
  }
}

TEST_P(StressSet, NeverBlowsUpADirection) {
  const auto engine = make_cpu_engine();
  for_each_set(GetParam(), [&](const CoefficientSet& set,
                               const MuonFacts& facts) {
    const Worst worst = worst_of(*engine, facts, 128, 384);
    EXPECT_LE(worst.singular_value, 1.35) << set.name << ": " << worst.where;
  });
}

// Sums over strips are shorter, so their rounding errors are no larger.
TEST_P(StressSet, StripsAreAsCloseToFp64) {
  const auto engine = make_cpu_engine();
  const auto& [form, precision] = GetParam();
  double without = 0, with = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed)
    for (const StressCase& hard : stress_cases(96, 512, seed)) {
      PlainMatrix rounded = hard.matrix;
      for (double& x : rounded.values) x = static_cast<float>(x);
      const PlainMatrix exact = plain_iteration(
          rounded, MuonFacts({}).coefficients(), /*norm_factor=*/1);
      const auto error = [&](const char* strips) {
        const MuonFacts facts(RuleOptions{{"device", "cpu"},
                                          {"newton_schulz", form},
                                          {"precision", precision},
                                          {"strips", strips}});
        return distance(orthogonal(*engine, facts, rounded), exact) /
               frobenius(exact);
      };
      without += error("1");
      with += error("8");
    }
  EXPECT_LE(with, 1.01 * without) << with << " with, " << without << " without";
}

// bf16 computes matrices of this size in fp32.
TEST_P(StressSet, SmallOnesStayCloseToFp64) {
  const auto engine = make_cpu_engine();
  for_each_set(
      GetParam(), [&](const CoefficientSet& set, const MuonFacts& facts) {
        const double tolerance = stress_tolerance(facts.coefficients(), "fp32");
        for (const auto& [m, n] : kSmallStressShapes) {
          EXPECT_EQ(facts.precision({m, n}), "fp32");
          for (const StressCase& hard : small_stress_cases(m, n, 1)) {
            const PlainMatrix exact = plain_iteration(
                hard.matrix, facts.coefficients(), set.norm_factor);
            const PlainMatrix o = orthogonal(*engine, facts, hard.matrix);
            EXPECT_LE(distance(o, exact) / frobenius(exact), tolerance)
                << set.name << " " << m << "x" << n << ": " << hard.name;
          }
        }
      });
}

INSTANTIATE_TEST_SUITE_P(
    Forms, StressSet,
    testing::Values(Variant{"standard", "fp32"}, Variant{"symmetric", "fp32"},
                    Variant{"gram", "fp32"}, Variant{"standard", "bf16"},
                    Variant{"symmetric", "bf16"}, Variant{"gram", "bf16"}),
    [](const auto& test) {
      return std::string(test.param.form) + "_" + test.param.precision;
    });

}  // namespace
}  // namespace canzona::rules::stress_test
