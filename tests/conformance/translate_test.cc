#include "tests/conformance/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/test_fixture.h"

namespace canzona::tests::translate_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;

// A fixture with these options; 4 x 6 by default.
Fixture with_options(const std::string& rule, const Json& options,
                     std::vector<int64_t> dims = {4, 6}) {
  TestFixture f = adamw_fixture();
  f.metadata["rule"] = rule;
  f.metadata["options"] = options.dump();
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  const std::vector<double> ones(static_cast<size_t>(count), 1);
  for (const char* name : {"param.0", "grad.1", "param.1"})
    f.tensors[name] = f64(dims, ones);
  return f.read();
}

Json muon_options() {
  return Json::parse(R"({"lr": 0.02, "weight_decay": 0.1,
    "decay_form": "palm", "decay_order": "before", "muon.momentum": 0.95,
    "muon.nesterov": true, "muon.momentum_form": "heavy_ball",
    "ema_form": "lerp", "muon.coefficients": "quintic", "muon.steps": 7,
    "muon.coefficient_values": [[1, 2, 3]], "muon.coeff_overrun": "cycle",
    "muon.ns_dtype": "fp64", "muon.norm_dtype": "fp64",
    "muon.ns_form": "fused", "muon.norm_eps_mode": "mul1.02+add",
    "muon.eps": 1e-07, "muon.norm_factor": 1.02, "muon.orient": "none",
    "muon.scale_extra": 0.2, "muon.scale": "unit_rms",
    "muon.scale_rounding": "bf16", "muon.flatten": "none",
    "muon.scale_shape": "matrix"})");
}

Json shampoo_options() {
  return Json::parse(R"json({"lr": 0.5, "weight_decay": 0.25,
    "decay_form": "independent", "eps": 1e-4, "peak_lr": 2.0,
    "shampoo.bias_correction": true, "shampoo.frequency": 2,
    "shampoo.start": 4, "shampoo.beta1": 0.875, "shampoo.beta2": 0.75,
    "shampoo.beta3": 0.5, "shampoo.max_preconditioner_dim": 8,
    "shampoo.merge": "inf", "shampoo.drop_weighting_factor": false,
    "shampoo.grafting": "none", "shampoo.exponent": "1/(2*order)",
    "shampoo.trace_scaling": false, "shampoo.kl": false,
    "shampoo.root": "eigen", "shampoo.perturb": "after"})json");
}

std::string unsupported(const Fixture& fixture) {
  try {
    translate(fixture, "auto");
  } catch (const Unsupported& what) {
    return what.what();
  }
  return "supported";
}

TEST(Translate, MuonInOurWords) {
  const Translation ours =
      translate(with_options("muon", muon_options()), "gram");
  EXPECT_THAT(
      ours.options,
      IsSupersetOf({Pair("learning_rate", "0.02"), Pair("weight_decay", "0.1"),
                    Pair("decay_form", "palm"), Pair("momentum", "0.95"),
                    Pair("momentum_form", "heavy_ball"), Pair("nesterov", "on"),
                    Pair("coefficients", "quintic"), Pair("overrun", "cycle"),
                    Pair("steps", "7"), Pair("newton_schulz", "gram"),
                    Pair("precision", "fp64"), Pair("epsilon", "1e-07"),
                    Pair("epsilon_mode", "add"), Pair("norm_factor", "1.02"),
                    Pair("scale", "unit_rms"), Pair("scale_extra", "0.2"),
                    Pair("device", "cpu"), Pair("unsafe", "on")}));
  EXPECT_THAT(ours.learning_rates, ElementsAre(0.02));
}

TEST(Translate, CustomCoefficientsAsNumbers) {
  Json options = muon_options();
  options["muon.coefficients"] = "custom";
  options["muon.coefficient_values"] = {{3.25, -4, 2}, {0.1, 0, -1}};
  const Translation ours = translate(with_options("muon", options), "auto");
  EXPECT_EQ(ours.options.at("coefficients"), "3.25,-4,2;0.1,0,-1");
}

TEST(Translate, WhatWeDoNotDoIsNamed) {
  const auto muon = [](const char* key, const Json& value) {
    Json options = muon_options();
    options[key] = value;
    return unsupported(with_options("muon", options));
  };
  EXPECT_EQ(unsupported(with_options("muon", muon_options())), "supported");
  EXPECT_EQ(muon("muon.flatten", "last_dim"), "muon.flatten=\"last_dim\"");
  EXPECT_EQ(muon("decay_form", "cosy"), "decay_form=\"cosy\"");
  EXPECT_EQ(muon("muon.colour", 3), "muon.colour=3");
  EXPECT_EQ(muon("muon.scale", "odd"), "muon.scale=\"odd\"");
  Json adamw = adamw_fixture().read().options;
  adamw["adam.amsgrad"] = true;
  EXPECT_EQ(unsupported(with_options("adamw", adamw)), "adam.amsgrad=true");
}

TEST(Translate, MissingOptionsAreFaultsOfTheFile) {
  Json options = muon_options();
  options.erase("muon.momentum");
  const Fixture fixture = with_options("muon", options);
  EXPECT_THROW(translate(fixture, "auto"), UsageError);
}

TEST(Translate, OptionsOfAnotherKindAreFaultsOfTheFile) {
  for (const auto& [key, value] :
       std::map<std::string, Json>{{"lr", "fast"},
                                   {"muon.nesterov", 1},
                                   {"muon.scale", 2},
                                   {"muon.coefficient_values", {1, 2, 3}}}) {
    Json options = muon_options();
    options[key] = value;
    const Fixture fixture = with_options("muon", options);
    EXPECT_THROW(translate(fixture, "auto"), UsageError) << key;
  }
}

TEST(Translate, ScalarsInFp32AreRoundedToIt) {
  Json options = muon_options();
  options["scalar_precision"] = "fp32";
  const Translation ours = translate(with_options("muon", options), "auto");
  EXPECT_EQ(ours.learning_rates[0], static_cast<double>(0.02f));
  EXPECT_EQ(ours.options.at("weight_decay"),
            exact_text(static_cast<double>(0.1f)));
  EXPECT_EQ(ours.options.at("steps"), "7");
}

TEST(Translate, SchedulesGiveEveryStepItsRate) {
  Json options = muon_options();
  options["lr_schedule"] = {0.5};
  EXPECT_THAT(translate(with_options("muon", options), "auto").learning_rates,
              ElementsAre(0.5));
  options["lr_schedule"] = {0.5, 0.25};
  const Fixture fixture = with_options("muon", options);
  EXPECT_THROW(translate(fixture, "auto"), UsageError);
}

TEST(Translate, NewtonSchulzFindsOutWhatFollowsTheLastCoefficients) {
  Json options = {{"muon.coefficients", "quintic"},
                  {"muon.steps", 6},
                  {"muon.norm_eps_mode", "clamp"},
                  {"muon.eps", 1e-15},
                  {"muon.norm_factor", 1.0}};
  Json last = {{4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377},
               {3.7418, -5.5913, 2.3037}, {2.8769, -3.1427, 1.2046},
               {2.8366, -3.0525, 1.2012}, {2.8366, -3.0525, 1.2012}};
  options["muon.coefficient_values"] = last;
  const auto overrun = [&] {
    return translate_newton_schulz(with_options("ns", options), "fp32", "auto")
        .at("overrun");
  };
  EXPECT_EQ(overrun(), "last");
  options["muon.coefficient_values"][5] = last[0];
  EXPECT_EQ(overrun(), "cycle");
}

TEST(Translate, ShampooInOurWords) {
  const Translation ours =
      translate(with_options("shampoo", shampoo_options()), "auto");
  EXPECT_THAT(
      ours.options,
      IsSupersetOf({Pair("learning_rate", "2"), Pair("weight_decay", "0.25"),
                    Pair("decay_form", "peak_independent"),
                    Pair("epsilon", "1e-04"), Pair("bias_correction", "on"),
                    Pair("precondition_frequency", "2"),
                    Pair("start_step", "4"), Pair("beta1", "0.875"),
                    Pair("beta2", "0.75"), Pair("beta3", "0.5"),
                    Pair("max_preconditioner_dim", "8"), Pair("merge", "off"),
                    Pair("grafting", "none"), Pair("exponent", "auto"),
                    Pair("root", "eigen"), Pair("perturb", "after")}));
  EXPECT_THAT(ours.learning_rates, ElementsAre(0.5));
}

// Results are compared as the references gave them, on any device.
TEST(Translate, TheDeviceChangesNoPrecision) {
  const RuleOptions ours =
      translate(with_options("shampoo", shampoo_options()), "auto", "cuda")
          .options;
  EXPECT_EQ(ours.at("device"), "cuda");
  EXPECT_EQ(ours.at("products"), "fp32");
}

TEST(Translate, ExponentsAreThoseOfTheMergedOrder) {
  const auto exponent = [](const Json& given, const Json& merge) {
    Json options = shampoo_options();
    options["shampoo.exponent"] = given;
    options["shampoo.merge"] = merge;
    options["shampoo.max_preconditioner_dim"] = 64;
    return translate(with_options("shampoo", options), "auto")
        .options.at("exponent");
  };
  const Json by_order = {{"1", 0.5}, {"2", 0.125}};
  EXPECT_EQ(exponent(by_order, "inf"), "0.125");
  EXPECT_EQ(exponent(by_order, 1), "0.5");
  EXPECT_EQ(exponent({{"3", 0.5}}, 2), "auto");
}

TEST(Translate, OfShampooNotEverything) {
  const auto shampoo = [](const char* key, const Json& value) {
    Json options = shampoo_options();
    options[key] = value;
    return unsupported(with_options("shampoo", options));
  };
  EXPECT_EQ(shampoo("shampoo.root", "svd"), "shampoo.root=\"svd\"");
  EXPECT_THAT(shampoo("shampoo.exponent", {{"2", {{"0", "half"}}}}),
              HasSubstr("shampoo.exponent="));
  EXPECT_EQ(shampoo("shampoo.cans_pairs", Json::array({1, 2})),
            "shampoo.cans_pairs=[1,2]");
}

TEST(Translate, VariantsOfShampooInOurWords) {
  Json options = shampoo_options();
  options["shampoo.kl"] = true;
  options["shampoo.trace_scaling"] = true;
  options["shampoo.drop_weighting_factor"] = true;
  options["shampoo.classic_momentum"] = 0.5;
  options["shampoo.classic_dampening"] = 0.25;
  options["shampoo.classic_nesterov"] = true;
  options["shampoo.exponent"] = {{"2", {{"1", 0.5}}}};
  const Translation ours = translate(with_options("shampoo", options), "auto");
  EXPECT_THAT(
      ours.options,
      IsSupersetOf(
          {Pair("kl", "on"), Pair("trace_scaling", "on"),
           Pair("drop_weighting", "on"), Pair("classic_momentum", "0.5"),
           Pair("classic_dampening", "0.25"), Pair("classic_nesterov", "on"),
           Pair("exponent", "0.25,0.5")}));
}

}  // namespace
}  // namespace canzona::tests::translate_test
