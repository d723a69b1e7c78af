#include "canzona/rules/shampoo/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::shampoo_options_test {
namespace {

using ::testing::HasSubstr;

ShampooOptions with(const RuleOptions& given) { return ShampooOptions(given); }

std::string complaint(const RuleOptions& given) {
  try {
    const ShampooOptions options(given);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ShampooOptions, DefaultIsTwoSidedAndGrafted) {
  const ShampooOptions options({});
  EXPECT_EQ(options.in_force.at("preset"), "canzona");
  EXPECT_EQ(options.blocking.merge, 2);
  EXPECT_EQ(options.grafting, Grafting::kAdam);
  EXPECT_EQ(options.beta2, 0.99);
  EXPECT_EQ(options.refresh.period, 10);
  EXPECT_EQ(options.start_step, 10);
  EXPECT_EQ(options.root.method, RootMethod::kNewton);
  EXPECT_EQ(options.root.rel_epsilon, 1e-5);
}

TEST(ShampooOptions, KnowsTheDefaultsOfMeta) {
  const ShampooOptions options = with({{"preset", "meta"}});
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.beta1, 0.9);
  EXPECT_EQ(options.beta2, 1);
  EXPECT_EQ(options.root.epsilon, 1e-12);
  EXPECT_EQ(options.root.rel_epsilon, 0);
  EXPECT_EQ(options.root.method, RootMethod::kEigen);
  EXPECT_TRUE(options.root.perturb_before);
  EXPECT_EQ(options.blocking.merge, 1);
  EXPECT_EQ(options.blocking.max_dim, 1024);
  EXPECT_EQ(options.grafting, Grafting::kNone);
  EXPECT_EQ(options.start_step, 1);
  EXPECT_TRUE(options.bias_correction);
}

TEST(ShampooOptions, AreTheSameMadeFromThoseInForce) {
  for (const Preset& preset : shampoo_presets()) {
    const RuleOptions once = with({{"preset", preset.name}}).in_force;
    EXPECT_EQ(with(once).in_force, once) << preset.name;
  }
}

TEST(ShampooOptions, TakesBeta3FromBeta1) {
  EXPECT_EQ(with({{"beta1", "0.8"}}).beta3, 0.8);
  EXPECT_EQ(with({{"beta3", "0.5"}}).beta3, 0.5);
}

TEST(ShampooOptions, RefusesDecaysThatKeepNothing) {
  EXPECT_THAT(complaint({{"beta1", "1"}}),
              HasSubstr("beta1='1' is not one of 0.0..<1.0"));
  EXPECT_THAT(complaint({{"beta3", "1"}}),
              HasSubstr("beta3='1' is not one of auto|0.0..<1.0"));
  EXPECT_EQ(complaint({{"beta2", "1"}, {"grafting_beta2", "1"}}), "");
}

TEST(ShampooOptions, ExponentFollowsTheOrder) {
  const ShampooOptions options({});
  EXPECT_EQ(options.power(1, 0).p, 2);
  EXPECT_EQ(options.power(2, 1).p, 4);
  EXPECT_EQ(options.power(3, 2).p, 6);
  EXPECT_EQ(options.power(3, 0).q, 1);
}

TEST(ShampooOptions, ReadsExponentsAsFractions) {
  const auto power = [](const char* text) {
    return with({{"exponent", text}, {"root", "higher"}}).power(2, 1);
  };
  EXPECT_EQ(power("0.125").p, 8);
  EXPECT_EQ(power("0.375").p, 8);
  EXPECT_EQ(power("0.375").q, 3);
  EXPECT_EQ(power("0.16666666666666666").p, 6);
  EXPECT_EQ(power("0.7").p, 10);
  EXPECT_EQ(power("0.7").q, 7);
  EXPECT_EQ(power("1").p, 1);
  EXPECT_EQ(power("0.001").p, 1000);
  EXPECT_THAT(complaint({{"exponent", "0.31830988618379067"}}),
              HasSubstr("not a fraction"));
}

TEST(ShampooOptions, NewtonTakesUnitFractionsOnly) {
  EXPECT_THAT(complaint({{"exponent", "0.375"}, {"root", "newton"}}),
              HasSubstr("3/8"));
  EXPECT_EQ(complaint({{"exponent", "0.375"}, {"root", "eigen"}}), "");
  EXPECT_EQ(complaint({{"exponent", "0.5"}, {"root", "newton"}}), "");
}

TEST(ShampooOptions, HasNoFactorsWithoutAUse) {
  EXPECT_TRUE(with({}).has_factor(2, 0));
  EXPECT_FALSE(with({{"exponent", "0"}}).has_factor(2, 0));
  EXPECT_FALSE(with({{"start_step", "never"}}).has_factor(2, 0));
}

TEST(ShampooOptions, ExponentsOfSingleAxesAreForTensorsOfAsManyAxes) {
  const ShampooOptions options = with({{"exponent", "0,0.5"}});
  EXPECT_EQ(options.in_force.at("exponent"), "0,0.5");
  EXPECT_FALSE(options.has_factor(2, 0));
  EXPECT_TRUE(options.has_factor(2, 1));
  EXPECT_EQ(options.power(2, 1).p, 2);
  EXPECT_TRUE(options.has_factor(1, 0));
  EXPECT_EQ(options.power(3, 1).p, 6);
  EXPECT_THAT(complaint({{"exponent", "0,1.5"}}), HasSubstr("exponent"));
  EXPECT_THAT(complaint({{"exponent", "0,"}}), HasSubstr("exponent"));
  EXPECT_THAT(complaint({{"exponent", "0.5,0.375"}, {"root", "newton"}}),
              HasSubstr("3/8"));
}

TEST(ShampooOptions, CansTakesSquareRootsOnly) {
  EXPECT_THAT(complaint({{"root", "cans"}}), HasSubstr("exponent=0.5"));
  EXPECT_THAT(complaint({{"root", "cans"}, {"exponent", "0.5,0.25"}}),
              HasSubstr("axis 1 of 2 has 1/4"));
  EXPECT_EQ(complaint({{"root", "cans"}, {"exponent", "0.5"}}), "");
  EXPECT_EQ(complaint({{"root", "cans"}, {"exponent", "0,0.5"}}), "");
}

TEST(ShampooOptions, APseudoInverseAddsNothing) {
  const ShampooOptions options = with({{"root", "pseudo"}});
  EXPECT_EQ(options.root.epsilon, 0);
  EXPECT_EQ(options.root.rel_epsilon, 0);
  EXPECT_LT(options.root.rank_rtol, 0) << "by rounding";
  EXPECT_EQ(complaint(options.in_force), "") << "reads what it wrote";
  EXPECT_THAT(complaint({{"root", "pseudo"}, {"epsilon", "1e-9"}}),
              HasSubstr("epsilon=1e-09"));
  EXPECT_THAT(complaint({{"root", "pseudo"}, {"root_rel_epsilon", "0.1"}}),
              HasSubstr("root_rel_epsilon=0.1"));
}

TEST(ShampooOptions, RefusesPartsOfAClassicMomentumThatIsNotThere) {
  EXPECT_THAT(complaint({{"classic_nesterov", "on"}}),
              HasSubstr("classic_nesterov=on needs a classic_momentum"));
  EXPECT_THAT(complaint({{"classic_dampening", "0.5"}}),
              HasSubstr("classic_dampening=0.5"));
  EXPECT_THAT(complaint({{"classic_momentum", "1"}}),
              HasSubstr("classic_momentum='1' is not one of 0.0..<1.0"));
  EXPECT_EQ(complaint({{"classic_momentum", "0.9"},
                       {"classic_dampening", "0.5"},
                       {"classic_nesterov", "on"}}),
            "");
}

TEST(ShampooOptions, StartsNotBeforeAPeriodHasPassed) {
  EXPECT_THAT(complaint({{"start_step", "9"}}), HasSubstr("start_step=9"));
  EXPECT_EQ(with({{"start_step", "25"}}).start_step, 25);
}

TEST(ShampooOptions, MultiplyAsTheDeviceDoesBest) {
  const auto splits = [](const char* device, const char* products) {
    return ShampooOptions({{"device", device}, {"products", products}})
        .splits_products;
  };
  EXPECT_TRUE(splits("cuda", "auto"));
  EXPECT_FALSE(splits("cpu", "auto"));
  EXPECT_FALSE(splits("cuda", "fp32"));
  EXPECT_TRUE(splits("cpu", "bf16x3"));
}

}  // namespace
}  // namespace canzona::rules::shampoo_options_test
