#include "canzona/rules/rule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::shampoo_rule_test {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Pointwise;

using Numbers = std::vector<double>;

constexpr double kRate = 0x1p-7;

RuleOptions with(RuleOptions options, const RuleOptions& more) {
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

// Settings whose numbers are exact in binary.
RuleOptions known_options(const RuleOptions& more = {}) {
  return with({{"preset", "meta"},
               {"learning_rate", "0.0078125"},
               {"beta1", "0.875"},
               {"beta2", "0.9375"},
               {"epsilon", "1e-8"},
               {"merge", "off"}},
              more);
}

TestTensor<double> tensor(const RuleOptions& options, Dims dims,
                          Numbers weights) {
  return {make_rule("shampoo", options, DType::kFp64), std::move(dims),
          std::move(weights)};
}

// Weights after each step from known weights with known gradients.
std::vector<Numbers> known_run(const RuleOptions& options, int steps) {
  const auto engine = make_cpu_engine();
  auto known = tensor(options, {3, 3}, known_weights(3, 3));
  std::vector<Numbers> weights;
  for (int t = 1; t <= steps; ++t) {
    known.step(*engine, known_gradient(3, 3, t), kRate);
    weights.push_back(known.weights);
  }
  return weights;
}

void expect_close(const std::vector<Numbers>& actual,
                  const std::vector<Numbers>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t t = 0; t < actual.size(); ++t)
    EXPECT_THAT(actual[t], Pointwise(DoubleNear(2e-12), expected[t]))
        << "step " << t + 1;
}

// Results of Meta's Distributed Shampoo in fp64.
TEST(ShampooKnown, WithoutGrafting) {
  expect_close(known_run(known_options(), 3),
               {{-7.476614675165e-01, 4.931959374879e-01, 3.044856978192e-03,
                 -4.927062529495e-03, -4.990161741347e-01, 7.559825826701e-01,
                 7.555937889932e-01, 2.537110611675e-01, -2.460034134008e-01},
                {-7.500224799408e-01, 4.916865697658e-01, 2.043117160873e-03,
                 -4.322656587875e-03, -5.028990938449e-01, 7.554827111870e-01,
                 7.550353959104e-01, 2.520887261354e-01, -2.414299013773e-01},
                {-7.494641194964e-01, 4.899818095089e-01, 4.082090599975e-03,
                 -4.753866949464e-03, -5.050761641420e-01, 7.573118649080e-01,
                 7.539659199150e-01, 2.496629083350e-01, -2.396281511597e-01}});
}

TEST(ShampooKnown, GraftedFromAdamWithDecay) {
  expect_close(known_run(known_options({{"grafting", "adam"},
                                        {"grafting_beta2", "0.9375"},
                                        {"grafting_epsilon", "1e-8"},
                                        {"weight_decay", "0.125"}}),
                         3),
               {{-7.454487706477e-01, 4.884007314190e-01, 4.972230523886e-03,
                 -8.045859256350e-03, -4.979051378719e-01, 7.590370945184e-01,
                 7.584021971154e-01, 2.558159967625e-01, -2.432294609194e-01},
                {-7.484892666500e-01, 4.855146365147e-01, 3.368471862116e-03,
                 -7.073293933800e-03, -5.036165314921e-01, 7.574979894848e-01,
                 7.567703042519e-01, 2.529767253273e-01, -2.356920306960e-01},
                {-7.468624572680e-01, 4.823052942053e-01, 6.636618449575e-03,
                 -7.758242979570e-03, -5.066177244382e-01, 7.596930356859e-01,
                 7.543153472759e-01, 2.488375682156e-01, -2.325710399864e-01}});
}

TEST(ShampooKnown, BeginsWithAStepOfAdam) {
  expect_close(known_run(known_options({{"grafting", "adam"},
                                        {"grafting_beta2", "0.9375"},
                                        {"grafting_epsilon", "1e-8"},
                                        {"start_step", "2"}}),
                         2),
               {{-7.421875006250e-01, 4.921875001250e-01, 7.812499687500e-03,
                 -7.812499791667e-03, -5.000000000000e-01, 7.578124997917e-01,
                 7.578124998437e-01, 2.578124997917e-01, -2.421875003125e-01},
                {-7.459559739424e-01, 4.897783590600e-01, 6.213596719601e-03,
                 -6.847791753547e-03, -5.061976291064e-01, 7.570146419207e-01,
                 7.569212341259e-01, 2.552230486658e-01, -2.348875988595e-01}});
}

TEST(ShampooKnown, WithExponentOneHalf) {
  expect_close(known_run(known_options({{"exponent", "0.5"}}), 1),
               {{-7.451923078600e-01, 4.903846155856e-01, 4.807692183842e-03,
                 -8.547008268389e-03, -4.967948719739e-01, 7.622863242653e-01,
                 7.580128203532e-01, 2.548076922131e-01, -2.419871798017e-01}});
}

// Blocks of 2 x 2, 2 x 1, 1 x 2 and 1 x 1 all have two axes.
TEST(ShampooKnown, CutIntoBlocks) {
  expect_close(known_run(known_options({{"max_preconditioner_dim", "2"}}), 2),
               {{-7.490309786153e-01, 4.922478291915e-01, 4.333595176337e-03,
                 -7.752170629302e-03, -5.009690212951e-01, 7.565003927645e-01,
                 7.562499999200e-01, 2.546874999400e-01, -2.421875006250e-01},
                {-7.528671623721e-01, 4.891062672844e-01, 1.751975016230e-03,
                 -8.475235818008e-03, -5.064258209654e-01, 7.571769418749e-01,
                 7.564876275763e-01, 2.514267386773e-01, -2.350582687017e-01}});
}

// The other methods compute the same roots.
TEST(ShampooKnown, ByCoupledIterations) {
  for (const char* root : {"newton", "higher"}) {
    const std::vector<Numbers> eigen = known_run(known_options(), 3);
    const std::vector<Numbers> coupled =
        known_run(known_options({{"root", root},
                                 {"root_abs_epsilon", "1e-8"},
                                 {"root_tolerance", "1e-12"}}),
                  3);
    for (size_t t = 0; t < eigen.size(); ++t)
      EXPECT_THAT(coupled[t], Pointwise(DoubleNear(1e-10), eigen[t])) << root;
  }
}

// If nothing is averaged or damped, the first step follows U·Vᵀ of a matrix
// U·S·Vᵀ.
TEST(ShampooEquals, OrthogonalisationInItsFirstStep) {
  Stream stream(7);
  const PlainMatrix u = orthonormal(5, 5, stream);
  const PlainMatrix v = orthonormal(5, 5, stream);
  const Numbers spectrum = {3, 2, 1, 0.5, 0.25};
  PlainMatrix scaled = u;
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 5; ++j)
      scaled(i, j) *= spectrum[static_cast<size_t>(j)];
  const PlainMatrix g = scaled * transposed(v);
  const auto engine = make_cpu_engine();
  auto moved = tensor(
      {{"preset", "meta"}, {"beta1", "0"}, {"epsilon", "0"}, {"merge", "2"}},
      {5, 5}, Numbers(25));
  moved.step(*engine, g.values, kRate);
  EXPECT_THAT(moved.update,
              Pointwise(DoubleNear(1e-12), (u * transposed(v)).values));
}

TEST(ShampooEquals, AdamWIfItNeverStarts) {
  const double b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, rate = 0.01;
  const auto engine = make_cpu_engine();
  auto shampoo = tensor({{"start_step", "never"},
                         {"beta1", "0.9"},
                         {"grafting_beta2", "0.95"},
                         {"grafting_epsilon", "1e-8"},
                         {"weight_decay", "0.1"}},
                        {4, 6}, known_weights(4, 6));
  Numbers p = known_weights(4, 6), m(24), v(24);
  for (int t = 1; t <= 5; ++t) {
    const Numbers g = known_gradient(4, 6, t);
    shampoo.step(*engine, g, rate);
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double mhat = m[i] / (1 - std::pow(b1, t));
      const double vhat = v[i] / (1 - std::pow(b2, t));
      p[i] -= rate * decay * p[i] + rate * mhat / (std::sqrt(vhat) + eps);
    }
    EXPECT_THAT(shampoo.weights, Pointwise(DoubleNear(1e-14), p));
  }
}

TEST(ShampooEquals, SgdWithMomentumIfItsExponentIsZero) {
  const auto engine = make_cpu_engine();
  auto shampoo =
      tensor(known_options({{"exponent", "0"}, {"bias_correction", "off"}}),
             {4, 6}, known_weights(4, 6));
  Numbers p = known_weights(4, 6), m(24);
  for (int t = 1; t <= 5; ++t) {
    const Numbers g = known_gradient(4, 6, t);
    shampoo.step(*engine, g, kRate);
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.875 * m[i] + 0.125 * g[i];
      p[i] -= kRate * m[i];
    }
    EXPECT_THAT(shampoo.weights, Pointwise(DoubleNear(1e-15), p));
  }
}

// B = momentum·B + (1 - dampening)·D, where D includes the decay.
TEST(ShampooEquals, SgdWithClassicMomentumIfItsExponentIsZero) {
  const auto engine = make_cpu_engine();
  for (const char* nesterov : {"off", "on"}) {
    auto shampoo = tensor(known_options({{"exponent", "0"},
                                         {"beta1", "0"},
                                         {"weight_decay", "0.125"},
                                         {"classic_momentum", "0.5"},
                                         {"classic_dampening", "0.25"},
                                         {"classic_nesterov", nesterov}}),
                          {4, 6}, known_weights(4, 6));
    Numbers p = known_weights(4, 6), b(24);
    for (int t = 1; t <= 5; ++t) {
      const Numbers g = known_gradient(4, 6, t);
      shampoo.step(*engine, g, kRate);
      for (size_t i = 0; i < p.size(); ++i) {
        const double d = g[i] + 0.125 * p[i];
        b[i] = 0.5 * b[i] + 0.75 * d;
        p[i] -= kRate * (nesterov[1] == 'n' ? 0.75 * d + 0.5 * b[i] : b[i]);
      }
      EXPECT_THAT(shampoo.weights, Pointwise(DoubleNear(1e-15), p));
      EXPECT_THAT(shampoo.state("momentum"), Pointwise(DoubleNear(1e-15), b));
    }
  }
}

// The momentum includes the decay even where the learning rate is 0.
TEST(ShampooEdge, AClassicMomentumGoesOnWithoutALearningRate) {
  const auto engine = make_cpu_engine();
  for (const char* form : {"decoupled", "corrected", "peak_independent"}) {
    auto still = tensor(known_options({{"exponent", "0"},
                                       {"weight_decay", "0.125"},
                                       {"decay_form", form},
                                       {"classic_momentum", "0.5"}}),
                        {1, 1}, {4});
    still.step(*engine, {1}, 0);
    EXPECT_EQ(still.weights[0], 4);
    const double decay = form[0] == 'd'   ? 0.5
                         : form[0] == 'c' ? 0
                                          : 0.5 / kRate;
    EXPECT_DOUBLE_EQ(still.state("momentum")[0], 1 + decay) << form;
  }
}

// Diagonal matrices stay diagonal, so that each entry is independent: F = Σ
// (g·other root)², and the roots divide by F^(1/4).
TEST(ShampooKnown, KlFactorsSeeTheOtherRoots) {
  const auto engine = make_cpu_engine();
  auto kl = tensor(
      known_options(
          {{"kl", "on"}, {"beta1", "0"}, {"beta2", "1"}, {"epsilon", "0"}}),
      {2, 2}, {0, 0, 0, 0});
  kl.step(*engine, {2, 0, 0, 3}, kRate);
  kl.step(*engine, {4, 0, 0, 1}, kRate);
  const double root = std::pow(4, -0.25);
  EXPECT_NEAR(kl.state("L")[0], 4 + std::pow(4 * root, 2), 1e-12);
  EXPECT_NEAR(kl.state("R")[3], 9 + std::pow(std::pow(9, -0.25), 2), 1e-12);
}

TEST(ShampooKnown, DroppedWeightingSumsWhatDecays) {
  const auto engine = make_cpu_engine();
  auto dropped = tensor(known_options({{"drop_weighting", "on"},
                                       {"beta1", "0"},
                                       {"beta2", "0.5"},
                                       {"epsilon", "0"},
                                       {"exponent", "0.5"}}),
                        {1, 1}, {0});
  dropped.step(*engine, {2}, kRate);
  dropped.step(*engine, {3}, kRate);
  EXPECT_NEAR(dropped.state("L")[0], 0.5 * 4 + 9, 1e-14);
  EXPECT_NEAR(dropped.update[0], 3 / 11., 1e-14) << "uncorrected";
}

// A factor of diag(16, 48) has the trace 64 and is divided by 8.
TEST(ShampooKnown, TraceScalingDividesByTheRootOfTheTrace) {
  const auto engine = make_cpu_engine();
  auto scaled = tensor(known_options({{"trace_scaling", "on"},
                                      {"beta1", "0"},
                                      {"beta2", "1"},
                                      {"epsilon", "0"},
                                      {"exponent", "0.5"}}),
                       {2, 2}, {0, 0, 0, 0});
  scaled.step(*engine, {4, 0, 0, std::sqrt(48.)}, kRate);
  EXPECT_NEAR(scaled.state("inv_L")[0], 1 / std::sqrt(2.), 1e-14);
  EXPECT_NEAR(scaled.state("inv_R")[3], 1 / std::sqrt(6.), 1e-14);
}

// Without grafting the identity replaces roots that do not exist yet.
TEST(ShampooEquals, SgdWithMomentumBeforeItStarts) {
  const auto engine = make_cpu_engine();
  auto shampoo =
      tensor(known_options({{"start_step", "9"}}), {2, 3}, known_weights(2, 3));
  auto sgd =
      tensor(known_options({{"exponent", "0"}}), {2, 3}, known_weights(2, 3));
  for (int t = 1; t <= 3; ++t) {
    shampoo.step(*engine, known_gradient(2, 3, t), kRate);
    sgd.step(*engine, known_gradient(2, 3, t), kRate);
  }
  EXPECT_EQ(shampoo.weights, sgd.weights);
}

TEST(ShampooEdge, D6AZeroGradientAtFirstMovesNothing) {
  const auto engine = make_cpu_engine();
  auto zero = tensor(known_options(), {2, 3}, known_weights(2, 3));
  zero.step(*engine, Numbers(6), kRate);
  EXPECT_EQ(zero.weights, known_weights(2, 3));
  EXPECT_THAT(zero.state("inv_L"),
              Pointwise(DoubleNear(1e-10), Numbers{100, 0, 0, 100}));
}

TEST(ShampooEdge, D6AZeroGradientInTheDefaultsMovesNothing) {
  const auto engine = make_cpu_engine();
  TestTensor<float> zero(
      make_rule("shampoo",
                {{"precondition_frequency", "2"}, {"weight_decay", "0"}},
                DType::kFp32),
      {2, 3}, std::vector<float>(6, 1.0F));
  for (int t = 1; t <= 4; ++t) zero.step(*engine, std::vector<float>(6), kRate);
  EXPECT_THAT(zero.weights, Each(1.0F));
}

TEST(ShampooEdge, AverageGoesOnThroughAZeroGradient) {
  const auto engine = make_cpu_engine();
  auto shampoo =
      tensor(known_options({{"exponent", "0"}}), {2, 3}, known_weights(2, 3));
  shampoo.step(*engine, known_gradient(2, 3, 1), kRate);
  const Numbers before = shampoo.weights;
  shampoo.step(*engine, Numbers(6), kRate);
  EXPECT_NE(shampoo.weights, before);
}

// Dropping sides of one leaves a vector with an inverse square root, unless
// merging is off.
TEST(ShampooEdge, VectorsHaveOneFactorUnlessMergingIsOff) {
  const auto engine = make_cpu_engine();
  for (const Dims& dims : {Dims{1, 5}, Dims{5, 1}, Dims{5}}) {
    auto merged =
        tensor(known_options({{"merge", "2"}}), dims, known_weights(1, 5));
    merged.step(*engine, known_gradient(1, 5, 1), kRate);
    EXPECT_EQ(merged.state("L").size(), 25U);
    EXPECT_TRUE(merged.state("R").empty());
  }
  auto apart = tensor(known_options(), {1, 5}, known_weights(1, 5));
  apart.step(*engine, known_gradient(1, 5, 1), kRate);
  EXPECT_EQ(apart.state("L").size(), 1U);
  EXPECT_EQ(apart.state("R").size(), 25U);
}

// The step is g/|g| for any vector if nothing is averaged or damped; for a
// single number, its sign.
TEST(ShampooEdge, ANumberMovesByItsSign) {
  const auto engine = make_cpu_engine();
  auto number = tensor({{"preset", "meta"}, {"epsilon", "0"}}, {}, {0.5});
  number.step(*engine, {-0.25}, kRate);
  EXPECT_NEAR(number.weights[0], 0.5 + kRate, 1e-15);
}

TEST(ShampooEdge, D6EmptyTensorsAreLegal) {
  const auto engine = make_cpu_engine();
  auto empty = tensor({}, {0, 4}, {});
  empty.step(*engine, {}, kRate);
  EXPECT_TRUE(empty.weights.empty());
}

TEST(ShampooEdge, LengthOfTheGradientDoesNotMatterWhereNothingIsDamped) {
  const auto engine = make_cpu_engine();
  for (double scale : {0x1p-100, 0x1p100}) {
    auto plain =
        tensor(known_options({{"epsilon", "0"}}), {3, 3}, known_weights(3, 3));
    auto scaled =
        tensor(known_options({{"epsilon", "0"}}), {3, 3}, known_weights(3, 3));
    Numbers g = known_gradient(3, 3, 1);
    plain.step(*engine, g, kRate);
    for (double& x : g) x *= scale;
    scaled.step(*engine, g, kRate);
    EXPECT_THAT(scaled.weights, Pointwise(DoubleNear(1e-12), plain.weights));
  }
}

TEST(ShampooDecay, FormsTakeWhatTheySay) {
  const auto engine = make_cpu_engine();
  const double peak = 0x1p-6, decay = 0.125;
  const auto kept = [&](const char* form) {
    auto moved = tensor(known_options({{"learning_rate", "0.015625"},
                                       {"weight_decay", "0.125"},
                                       {"decay_form", form}}),
                        {2, 2}, {1, 1, 1, 1});
    moved.step(*engine, Numbers(4), kRate);
    return moved.weights[0];
  };
  EXPECT_DOUBLE_EQ(kept("decoupled"), 1 - kRate * decay);
  EXPECT_DOUBLE_EQ(kept("corrected"), 1 - kRate * decay * kRate / peak);
  EXPECT_DOUBLE_EQ(kept("peak_independent"), 1 - kRate * decay / peak);
  EXPECT_LT(kept("l2"), 1);
}

TEST(ShampooDecay, L2IsAGradient) {
  const auto engine = make_cpu_engine();
  auto l2 =
      tensor(known_options({{"weight_decay", "0.125"}, {"decay_form", "l2"}}),
             {3, 3}, known_weights(3, 3));
  auto added = tensor(known_options(), {3, 3}, known_weights(3, 3));
  for (int t = 1; t <= 3; ++t) {
    const Numbers g = known_gradient(3, 3, t);
    Numbers sum = g;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += 0.125 * added.weights[i];
    l2.step(*engine, g, kRate);
    added.step(*engine, sum, kRate);
  }
  EXPECT_EQ(l2.weights, added.weights);
}

}  // namespace
}  // namespace canzona::rules::shampoo_rule_test
