#include "canzona/rules/soap/update.h"

#include <gmock/gmock.h>

#include <cmath>

namespace canzona::rules::soap_coefficients_test {
namespace {

SoapOptions with(const RuleOptions& given) {
  return read_soap_options(soap_options_in_force(given));
}

// The stage's own formula for one number; update() returns the quotient.
struct Number {
  double m = 0, v = 0;

  double update(const AdamCoefficients& adam, double g) {
    m = adam.m_keep * m + adam.m_add * g;
    v = adam.v_keep * v + adam.v_add * g * g;
    return (adam.from_moment * m + adam.from_grad * g) /
           (std::sqrt(v) * adam.root_scale + adam.epsilon);
  }
};

// Without epsilon and with equal gradients, Adam moves by one.
TEST(SoapCoefficients, TakeTheBiasOut) {
  for (const char* mode : {"corrected", "uncorrected"}) {
    const SoapOptions soap =
        with({{"epsilon", "0"}, {"epsilon_mode", mode}, {"beta1", "0.8"}});
    Number number;
    for (int64_t s = 1; s < 6; ++s)
      EXPECT_NEAR(number.update(soap_adam(soap, s), 3), 1, 1e-14);
  }
}

TEST(SoapCoefficients, AddEpsilonBeforeOrAfter) {
  const SoapOptions after = with(
      {{"epsilon", "0.5"}, {"epsilon_mode", "corrected"}, {"beta2", "0.75"}});
  Number number;
  EXPECT_NEAR(number.update(soap_adam(after, 1), 2), 2 / 2.5, 1e-14);
  const SoapOptions before = with({{"epsilon", "0.5"}, {"beta2", "0.75"}});
  Number other;  // the root is half of the correct one, and so is the step
  EXPECT_NEAR(other.update(soap_adam(before, 1), 2), 0.5 * 2 / 1.5, 1e-14);
}

TEST(SoapCoefficients, LookAheadByNesterov) {
  const SoapOptions soap = with(
      {{"beta1", "0.5"}, {"nesterov", "on"}, {"epsilon_mode", "corrected"}});
  const AdamCoefficients adam = soap_adam(soap, 2);
  EXPECT_DOUBLE_EQ(adam.from_moment, 0.5 / (1 - 0.125));
  EXPECT_DOUBLE_EQ(adam.from_grad, 0.5 / (1 - 0.25));
}

// beta3·(old moment) + (1 - beta3)·g, over 1 - beta3·beta1^(s-1).
TEST(SoapCoefficients, BlendByBeta3) {
  const SoapOptions soap = with(
      {{"beta1", "0.5"}, {"beta3", "0.25"}, {"epsilon_mode", "corrected"}});
  double m = 0;
  for (int64_t s = 1; s < 5; ++s) {
    const double g = static_cast<double>(s) - 2.5;
    const double weight = 1 - 0.25 * std::pow(0.5, static_cast<double>(s - 1));
    const double expected = (0.25 * m + 0.75 * g) / weight;
    m = 0.5 * m + 0.5 * g;
    const AdamCoefficients adam = soap_adam(soap, s);
    EXPECT_NEAR(adam.from_moment * m + adam.from_grad * g, expected, 1e-14);
  }
}

TEST(SoapCoefficients, UseTheGradientWhereNoMomentIsKept) {
  for (const char* nesterov : {"on", "off"}) {
    const AdamCoefficients adam =
        soap_adam(with({{"beta1", "0"},
                        {"nesterov", nesterov},
                        {"epsilon_mode", "corrected"}}),
                  3);
    EXPECT_EQ(adam.from_moment, 0);
    EXPECT_DOUBLE_EQ(adam.from_grad, 1);
  }
}

TEST(SoapCoefficients, SumWhereNothingIsForgotten) {
  const SoapOptions soap = with({{"preset", "meta"}});  // beta2 = 1
  const AdamCoefficients adam = soap_adam(soap, 4);
  EXPECT_EQ(adam.v_keep, 1);
  EXPECT_EQ(adam.v_add, 1);
  EXPECT_EQ(adam.root_scale, 1);
  EXPECT_EQ(soap_factor_weights(soap, 4).keep, 1);
  EXPECT_EQ(soap_factor_weights(soap, 4).add, 1);
  EXPECT_EQ(soap_factor_scale(soap, 4), 1);
}

// An average with corrected weights is the plain one without its bias.
TEST(SoapCoefficients, CorrectFactorsByTheirWeights) {
  const SoapOptions plain = with({{"shampoo_beta", "0.75"}});
  const SoapOptions corrected =
      with({{"shampoo_beta", "0.75"}, {"factor_bias_correction", "weights"}});
  const SoapOptions at_last = with(
      {{"shampoo_beta", "0.75"}, {"factor_bias_correction", "decomposition"}});
  double biased = 0;
  double unbiased = 5;  // the value before the first step is forgotten
  for (int64_t t = 1; t < 6; ++t) {
    const double seen = static_cast<double>(t * t);
    const FactorWeights a = soap_factor_weights(plain, t);
    const FactorWeights b = soap_factor_weights(corrected, t);
    biased = a.keep * biased + a.add * seen;
    unbiased = b.keep * unbiased + b.add * seen;
    EXPECT_NEAR(unbiased, biased * soap_factor_scale(at_last, t), 1e-13);
  }
  EXPECT_EQ(soap_factor_scale(plain, 3), 1);
}

TEST(SoapCoefficients, OfGraftingAreThoseOfTheOtherRule) {
  const auto grafting = [](const char* name) {
    return soap_grafting_adam(with({{"preset", "meta"},
                                    {"bias_correction", "off"},
                                    {"grafting", name},
                                    {"grafting_beta2", "0.75"}}),
                              2);
  };
  EXPECT_EQ(grafting("adagrad").v_keep, 1);
  EXPECT_EQ(grafting("adagrad").root_scale, 1);
  EXPECT_EQ(grafting("rmsprop").v_keep, 0.75);
  EXPECT_EQ(grafting("rmsprop").root_scale, 1);
  EXPECT_DOUBLE_EQ(grafting("adam").root_scale, 1 / std::sqrt(1 - 0.75 * 0.75));
  EXPECT_EQ(grafting("adam").m_keep, 1);
  EXPECT_EQ(grafting("adam").m_add, 0);
}

}  // namespace
}  // namespace canzona::rules::soap_coefficients_test
