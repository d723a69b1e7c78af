#include <gmock/gmock.h>

#include <cmath>
#include <deque>

#include "canzona/base/error.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::muon_rule_test {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

RuleOptions on_cpu(RuleOptions options) {
  options.try_emplace("device", "cpu");
  return options;
}

TestTensor<double> known_tensor(const RuleOptions& options, int64_t rows,
                                int64_t cols) {
  return {make_rule("muon", on_cpu(options), DType::kFp64),
          {rows, cols},
          known_weights(rows, cols)};
}

void expect_steps(TestTensor<double> tensor, int64_t rows, int64_t cols,
                  double rate,
                  const std::vector<std::vector<double>>& expected) {
  const auto engine = make_cpu_engine();
  for (const std::vector<double>& weights : expected) {
    tensor.step(*engine, known_gradient(rows, cols, tensor.steps + 1), rate);
    EXPECT_THAT(tensor.weights, Pointwise(DoubleNear(1e-11), weights))
        << "after step " << tensor.steps;
  }
}

TEST(MuonRule, TakesTheKnownStepsOfKeller) {
  const RuleOptions keller{{"preset", "keller"}, {"weight_decay", "0.1"}};
  expect_steps(
      known_tensor(keller, 2, 3), 2, 3, 0.02,
      {{-7.448656756318e-01, 4.789551301502e-01, 8.392597541693e-03,
        -1.040344030228e-02, -4.996244160029e-01, 7.592780899040e-01},
       {-7.582810198662e-01, 4.761882618865e-01, -3.053755175656e-03,
        -7.032638488641e-03, -5.126865843807e-01, 7.520507913938e-01},
       {-7.429449031390e-01, 4.688432229367e-01, 4.383058939064e-03,
        -2.212698021875e-02, -5.147687876895e-01, 7.618266099810e-01}});
  expect_steps(known_tensor(keller, 3, 2), 3, 2, 0.02,
               {{-7.456826540370e-01, 4.778315186967e-01, -1.202696051533e-02,
                 -4.997149845252e-01, 7.652509318790e-01, 2.632973983874e-01},
                {-7.553186807482e-01, 4.795915610334e-01, -3.441863822558e-03,
                 -5.206895390180e-01, 7.541435645096e-01, 2.462061505785e-01}});
}

TEST(MuonRule, TakesTheKnownStepsOfMoonlight) {
  expect_steps(
      known_tensor({{"preset", "moonlight"}}, 2, 3), 2, 3, 0x1p-6,
      {{-7.478445546324e-01, 4.937939404678e-01, 2.271315351735e-03,
        -2.815522384312e-03, -4.993877358981e-01, 7.517450389232e-01},
       {-7.507098330413e-01, 4.925328209569e-01, -8.254394926204e-04,
        -1.904516789935e-03, -5.024128951114e-01, 7.490254720043e-01},
       {-7.457968207355e-01, 4.900331692980e-01, 1.186851590583e-03,
        -5.990372319024e-03, -5.024688903845e-01, 7.509078427195e-01}});
}

TEST(MuonRule, TakesTheKnownStepsOfNvidia) {
  expect_steps(
      known_tensor({{"preset", "nvidia"},
                    {"weight_decay", "0.1"},
                    {"scale_extra", "0.2"}},
                   2, 3),
      2, 3, 0x1p-6,
      {{-7.475968675114e-01, 4.942193352820e-01, 1.768391342171e-03,
        -4.002271859220e-03, -4.988331257583e-01, 7.525990223142e-01},
       {-7.512766832479e-01, 4.918917963767e-01, 1.211810107347e-04,
        -2.389570971402e-03, -5.031828519959e-01, 7.514893457372e-01},
       {-7.463661127785e-01, 4.895261700050e-01, 3.553056842967e-03,
        -5.655923363086e-03, -5.061922002636e-01, 7.520997804351e-01}});
}

std::vector<float> random_values(int64_t count, uint64_t seed) {
  Stream s(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(s.normal()));
  return values;
}

TestTensor<float> random_tensor(const RuleOptions& options, Dims dims) {
  const int64_t count = num_elements(dims);
  return {make_rule("muon", on_cpu(options), DType::kFp32), std::move(dims),
          random_values(count, 77)};
}

// Fusing the stages never changes bits, on any kernel or shape: tall, wide or
// ragged.
TEST(MuonRule, FusedAndStagedStepsGiveTheSameBits) {
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    const auto engine = make_cpu_engine(kernel);
    for (const char* precision : {"fp32", "bf16"})
      for (const char* form : {"standard", "symmetric", "gram"})
        for (const Dims& dims :
             {Dims{33, 70}, Dims{70, 33}, Dims{32, 64}, Dims{1, 5}, Dims{5, 1},
              Dims{0, 4}, Dims{2, 9, 40}}) {
          // Forces bf16 although the matrices are small.
          const RuleOptions options{{"precision", precision},
                                    {"newton_schulz", form},
                                    {"unsafe", "on"}};
          TestTensor<float> staged = random_tensor(options, dims);
          TestTensor<float> fused = random_tensor(options, dims);
          for (uint64_t t = 1; t <= 3; ++t) {
            const auto grad = random_values(num_elements(dims), t);
            staged.step(*engine, grad, 0.01);
            fused.step_whole(*engine, grad, 0.01);
            ASSERT_EQ(staged.weights, fused.weights)
                << to_string(kernel) << " " << precision << " " << form << " "
                << to_string(dims) << " step " << t;
            ASSERT_EQ(staged.state("momentum"), fused.state("momentum"));
          }
        }
  }
}

// Each with every link of the chain: matrices of odd sizes in a stack, fused or
// in stages, or one by one.
TEST(MuonRule, LinkedMatricesOfAStackAreSeparateOnes) {
  const auto engine = make_cpu_engine();
  for (RuleOptions options :
       {RuleOptions{{"equilibrate", "rows"}},
        RuleOptions{{"equilibrate", "rows"}, {"renorm", "on"}},
        RuleOptions{{"second_moment", "normuon"}},
        RuleOptions{{"second_moment", "normuon"},
                    {"second_moment_axis", "rows"},
                    {"cautious_decay", "on"}},
        RuleOptions{{"second_moment", "adamuon"}},
        RuleOptions{{"second_moment", "namo"}},
        RuleOptions{{"constraint", "hyperball"}},
        RuleOptions{{"constraint", "hyperball"}, {"cautious_decay", "on"}},
        RuleOptions{{"constraint", "hyperball"},
                    {"constraint_radius", "3"},
                    {"second_moment", "normuon"}},
        RuleOptions{{"constraint", "hyperball"}, {"second_moment", "adamuon"}}})
    for (const Dims& dims : {Dims{3, 5, 7}, Dims{3, 7, 5}, Dims{3, 1, 3}}) {
      options["weight_decay"] = "0.1";
      const int64_t all = num_elements(dims), each = all / 3;
      TestTensor<float> staged = random_tensor(options, dims);
      TestTensor<float> fused = random_tensor(options, dims);
      std::deque<TestTensor<float>> alone;
      for (int64_t i = 0; i < 3; ++i) {
        const auto first = staged.weights.begin() + i * each;
        alone.emplace_back(make_rule("muon", on_cpu(options), DType::kFp32),
                           Dims{dims[1], dims[2]},
                           std::vector<float>(first, first + each));
      }
      for (uint64_t t = 1; t <= 3; ++t) {
        const auto grad = random_values(all, t);
        staged.step(*engine, grad, 0.01);
        fused.step_whole(*engine, grad, 0.01);
        ASSERT_EQ(staged.weights, fused.weights) << to_string(dims);
        for (int64_t i = 0; i < 3; ++i) {
          const auto first = grad.begin() + i * each;
          auto& one = alone[static_cast<size_t>(i)];
          one.step(*engine, {first, first + each}, 0.01);
          const auto here = staged.weights.begin() + i * each;
          ASSERT_EQ(one.weights, std::vector<float>(here, here + each))
              << to_string(dims) << " matrix " << i;
        }
      }
    }
}

TEST(MuonRule, NeverWritesTheGradient) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"}) {
    TestTensor<float> tensor =
        random_tensor({{"precision", precision}}, {20, 33});
    const auto grad = random_values(660, 5);
    const auto before = grad;
    tensor.step(*engine, grad, 0.1);
    tensor.step_whole(*engine, grad, 0.1);
    EXPECT_EQ(grad, before) << precision;
  }
}

TEST(MuonRule, ContinuesBitForBitFromSavedStates) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"}) {
    const RuleOptions options{{"precision", precision}};
    TestTensor<float> through = random_tensor(options, {12, 40});
    TestTensor<float> resumed = random_tensor(options, {12, 40});
    for (uint64_t t = 1; t <= 4; ++t) {
      const auto grad = random_values(480, t);
      if (t == 3) {
        resumed.weights = through.weights;
        const auto momentum = through.state("momentum");
        std::copy(momentum.begin(), momentum.end(),
                  reinterpret_cast<float*>(resumed.states.runs[0].data));
        resumed.steps = through.steps;
      }
      through.step(*engine, grad, 0.1);
      if (t >= 3) resumed.step(*engine, grad, 0.1);
    }
    EXPECT_EQ(through.weights, resumed.weights) << precision;
  }
}

TEST(MuonRule, DecaysOnlyWhereTheGradientIsZero) {
  const auto engine = make_cpu_engine();
  TestTensor<float> tensor = random_tensor({{"weight_decay", "0.5"}}, {4, 6});
  const auto before = tensor.weights;
  tensor.step(*engine, std::vector<float>(24), 0.5);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(tensor.weights[i], before[i] * 0.75F);
}

// A decaying sum is a multiple of the average, and the norm cancels the factor.
TEST(MuonRule, HeavyBallAndAverageGiveOneDirection) {
  const auto engine = make_cpu_engine();
  const auto run = [&](const char* form) {
    TestTensor<double> tensor(
        make_rule("muon", on_cpu({{"momentum_form", form}, {"epsilon", "0"}}),
                  DType::kFp64),
        {3, 3}, known_weights(3, 3));
    for (int64_t t = 1; t <= 4; ++t)
      tensor.step(*engine, known_gradient(3, 3, t), 0.1);
    return tensor.weights;
  };
  EXPECT_THAT(run("heavy_ball"), Pointwise(DoubleNear(1e-12), run("ema")));
}

TEST(MuonRule, StackedMatricesAreSeparateOnes) {
  const auto engine = make_cpu_engine();
  TestTensor<float> stack = random_tensor({}, {3, 8, 5});
  const auto start = stack.weights;
  const auto grad = random_values(120, 9);
  stack.step(*engine, grad, 0.1);
  for (int64_t i = 0; i < 3; ++i) {
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + 40 * i,
                                all.begin() + 40 * (i + 1));
    };
    TestTensor<float> one(make_rule("muon", on_cpu({}), DType::kFp32), {8, 5},
                          part(start));
    one.step(*engine, part(grad), 0.1);
    EXPECT_EQ(one.weights, part(stack.weights));
  }
}

TEST(MuonRule, AFlattenedTensorMovesAsTheMatrixItIs) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"}) {
    const RuleOptions options = {{"precision", precision},
                                 {"flatten", "first_dim"},
                                 {"scale", "original"}};
    TestTensor<float> conv = random_tensor(options, {12, 2, 5});
    TestTensor<float> matrix(make_rule("muon", on_cpu(options), DType::kFp32),
                             {12, 10}, conv.weights);
    for (uint64_t t = 1; t <= 3; ++t) {
      conv.step(*engine, random_values(120, t), 0.1);
      matrix.step_whole(*engine, random_values(120, t), 0.1);
    }
    EXPECT_EQ(conv.weights, matrix.weights) << precision;
  }
}

// sqrt(max(1, m/n)) is 1 for 10 x 12 and for 3 x 4, and 2/sqrt(3) for 4 x 3.
TEST(MuonRule, TheLastTwoAxesMayScaleAFlattenedTensor) {
  const auto engine = make_cpu_engine();
  const auto moved = [&](const Dims& dims, const char* shape) {
    TestTensor<double> tensor(make_rule("muon",
                                        on_cpu({{"flatten", "first_dim"},
                                                {"scale", "original"},
                                                {"scale_shape", shape},
                                                {"weight_decay", "0"}}),
                                        DType::kFp64),
                              dims, std::vector<double>(120));
    tensor.step(*engine, known_gradient(10, 12, 1), 1);
    return tensor.weights[7];
  };
  const double matrix = moved({10, 12}, "matrix");
  EXPECT_DOUBLE_EQ(moved({10, 3, 4}, "last_two"), matrix);
  EXPECT_DOUBLE_EQ(moved({10, 4, 3}, "matrix"), matrix);
  EXPECT_DOUBLE_EQ(moved({10, 4, 3}, "last_two") / matrix, 2 / std::sqrt(3.));
}

TEST(MuonRule, CautiousDecayLooksAtTheSignsOfWeightsAndUpdates) {
  const auto engine = make_cpu_engine();
  const auto run = [&](const char* decay, const char* cautious) {
    TestTensor<double> tensor(make_rule("muon",
                                        on_cpu({{"weight_decay", decay},
                                                {"cautious_decay", cautious},
                                                {"nesterov", "off"}}),
                                        DType::kFp64),
                              {3, 4}, known_weights(3, 4));
    tensor.step(*engine, known_gradient(3, 4, 1), 0.5);
    return std::pair(tensor.weights, tensor.update);
  };
  const auto [free, update] = run("0", "off");
  const auto all = run("0.25", "off").first;
  const auto some = run("0.25", "on").first;
  const std::vector<double> start = known_weights(3, 4);
  int64_t spared = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    const bool decays = start[i] * update[i] >= 0;
    EXPECT_EQ(some[i], decays ? all[i] : free[i]) << i;
    if (!decays) ++spared;
  }
  EXPECT_GT(spared, 0);
  EXPECT_LT(spared, 12);
}

TEST(MuonRule, RefusesWhatIsNoMatrix) {
  const auto engine = make_cpu_engine();
  TestTensor<float> vector = random_tensor({}, {5});
  EXPECT_THAT([&] { vector.step(*engine, random_values(5, 1), 0.1); },
              ThrowsMessage<UsageError>(HasSubstr("use adamw for it")));
  EXPECT_THAT(
      [&] {
        make_rule("muon", on_cpu({{"precision", "fp16"}}), DType::kFp32);
      },
      ThrowsMessage<UsageError>(HasSubstr("precision=fp16")));
}

TEST(MuonRule, ARuleForAnotherDeviceIsRefusedByTheEngine) {
  const auto engine = make_cpu_engine();
  TestTensor<float> tensor(
      make_rule("muon", {{"device", "cuda"}}, DType::kFp32), {4, 5},
      random_values(20, 1));
  EXPECT_THAT([&] { tensor.step(*engine, random_values(20, 2), 0.1); },
              ThrowsMessage<UsageError>(HasSubstr("no products in fp16")));
}

// Weight decay in its four forms, on a weight that the update does not move.
TEST(MuonRule, KnowsFourFormsOfDecay) {
  const auto engine = make_cpu_engine();
  const auto after = [&](const char* form) {
    TestTensor<double> tensor(
        make_rule("muon",
                  on_cpu({{"decay_form", form}, {"weight_decay", "0.25"}}),
                  DType::kFp64),
        {1, 1}, {8});
    tensor.step(*engine, {0}, 0.5);
    return tensor.weights[0];
  };
  EXPECT_EQ(after("decoupled"), 8 * (1 - 0.125));
  EXPECT_EQ(after("independent"), 8 * (1 - 0.25));
  EXPECT_EQ(after("palm"), 8 * (1 - 0.0625));
  EXPECT_LT(after("l2"), 8) << "the weight itself becomes the gradient";
}

}  // namespace
}  // namespace canzona::rules::muon_rule_test
