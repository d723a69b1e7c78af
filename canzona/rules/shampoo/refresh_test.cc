// Tests of roots that cannot be computed.
#include "canzona/rules/shampoo/batch_step.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "canzona/rules/test_steps.h"

namespace canzona::rules::refresh_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kRate = 0x1p-7;

// Refuses roots while told to, and records which it saw.
class Refusing : public DecompositionHook {
 public:
  bool inverse_root(const FactorId& part, Matrices root) override {
    parts.push_back(part);
    types.push_back(root.dtype);
    return !(refuse && part.block == block && part.axis == axis);
  }
  bool refuse = true;
  int64_t block = 0;
  int axis = 1;
  std::vector<FactorId> parts;
  std::vector<DType> types;
};

template <class Real>
TestTensor<Real> tensor(DecompositionHook* hook, const RuleOptions& more = {}) {
  RuleOptions options = {
      {"preset", "meta"}, {"merge", "off"}, {"epsilon", "1e-4"}};
  for (const auto& [name, value] : more) options[name] = value;
  const std::vector<double> start = known_weights(4, 3);
  return {make_rule("shampoo", options, DTypeOf<Real>::value),
          {4, 3},
          std::vector<Real>(start.begin(), start.end()),
          hook};
}

template <class Real>
std::vector<Real> gradient(int64_t t) {
  const std::vector<double> g = known_gradient(4, 3, t);
  return {g.begin(), g.end()};
}

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const NumericalError& error) {
    return error.what();
  }
  return "";
}

TEST(ShampooRefresh, D7KeepsTheOldRootAndCounts) {
  const auto engine = make_cpu_engine();
  Refusing hook;
  hook.refuse = false;
  auto shampoo = tensor<double>(&hook);
  shampoo.step(*engine, gradient<double>(1), kRate);
  const std::vector<double> left = shampoo.state("inv_L");
  const std::vector<double> right = shampoo.state("inv_R");
  hook.refuse = true;
  shampoo.step(*engine, gradient<double>(2), kRate);
  EXPECT_NE(shampoo.state("inv_L"), left);
  EXPECT_EQ(shampoo.state("inv_R"), right);
  EXPECT_EQ(shampoo.state("refresh_failures"), (std::vector<double>{0, 1}));
}

TEST(ShampooRefresh, ASuccessSetsTheCountBack) {
  const auto engine = make_cpu_engine();
  Refusing hook;
  auto shampoo = tensor<float>(&hook);
  for (int t = 1; t <= 3; ++t) shampoo.step(*engine, gradient<float>(t), kRate);
  EXPECT_EQ(shampoo.state("refresh_failures"), (std::vector<float>{0, 3}));
  hook.refuse = false;
  shampoo.step(*engine, gradient<float>(4), kRate);
  EXPECT_THAT(shampoo.state("refresh_failures"), Each(0));
}

TEST(ShampooRefresh, D7TheFourthFailureInARowIsAnError) {
  const auto engine = make_cpu_engine();
  Refusing hook;
  auto shampoo = tensor<float>(&hook);
  for (int t = 1; t <= 3; ++t) shampoo.step(*engine, gradient<float>(t), kRate);
  EXPECT_THAT(
      complaint([&] { shampoo.step(*engine, gradient<float>(4), kRate); }),
      AllOf(HasSubstr("step 4"), HasSubstr("axis 1"), HasSubstr("block 0"),
            HasSubstr("4 consecutive failures")));
}

TEST(ShampooRefresh, TriesAgainInFp64WhereThatIsMore) {
  const auto engine = make_cpu_engine();
  Refusing single;
  auto in_fp32 = tensor<float>(&single);
  in_fp32.step(*engine, gradient<float>(1), kRate);
  EXPECT_EQ(single.parts.size(), 3U);  // axis 0 once, axis 1 twice
  EXPECT_THAT(single.types, Each(DType::kFp32));
  Refusing twice;
  auto in_fp64 = tensor<double>(&twice);
  in_fp64.step(*engine, gradient<double>(1), kRate);
  EXPECT_EQ(twice.parts.size(), 2U);
}

// Refuses the first root of every factor.
class RefusingOnce : public DecompositionHook {
 public:
  bool inverse_root(const FactorId&, Matrices) override {
    return ++calls % 2 == 0;
  }
  int calls = 0;
};

TEST(ShampooRefresh, TheSecondTryIsTheBetterOne) {
  const auto engine = make_cpu_engine();
  RefusingOnce hook;
  auto retried = tensor<float>(&hook);
  auto exact = tensor<double>(nullptr);
  retried.step(*engine, gradient<float>(1), kRate);
  exact.step(*engine, gradient<double>(1), kRate);
  EXPECT_THAT(retried.state("refresh_failures"), Each(0));
  const std::vector<float> root = retried.state("inv_L");
  const std::vector<double> expected = exact.state("inv_L");
  for (size_t i = 0; i < root.size(); ++i)
    EXPECT_NEAR(root[i], expected[i], 1e-4 * expected[0]);
}

class Replacing : public DecompositionHook {
 public:
  bool inverse_root(const FactorId&, Matrices root) override {
    for (int64_t i = 0; i < root.elements(); ++i) root.as<double>()[i] = value;
    return true;
  }
  double value = 0.5;
};

TEST(ShampooRefresh, AHookMayReplaceTheRoot) {
  const auto engine = make_cpu_engine();
  Replacing hook;
  auto shampoo = tensor<double>(&hook);
  shampoo.step(*engine, gradient<double>(1), kRate);
  EXPECT_THAT(shampoo.state("inv_L"), Each(0.5));
  EXPECT_THAT(shampoo.state("inv_R"), Each(0.5));
}

TEST(ShampooRefresh, ARootThatIsNotFiniteIsAnError) {
  const auto engine = make_cpu_engine();
  Replacing hook;
  hook.value = std::numeric_limits<double>::infinity();
  auto shampoo = tensor<double>(&hook);
  EXPECT_THAT(
      complaint([&] { shampoo.step(*engine, gradient<double>(1), kRate); }),
      HasSubstr("root that is not finite"));
}

TEST(ShampooRefresh, AnUndampedSingularFactorIsAnError) {
  const auto engine = make_cpu_engine();
  auto shampoo = tensor<double>(nullptr, {{"epsilon", "0"}});
  EXPECT_THAT(
      complaint([&] { shampoo.step(*engine, std::vector<double>(12), kRate); }),
      HasSubstr("root that is not finite"));
}

TEST(ShampooRefresh, D7AFactorThatIsNotFiniteNamesStepBlockAndAxis) {
  const auto engine = make_cpu_engine();
  for (double bad : {std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity(), 1e200}) {
    auto shampoo = tensor<double>(nullptr, {{"max_preconditioner_dim", "2"}});
    shampoo.step(*engine, gradient<double>(1), kRate);
    std::vector<double> g = gradient<double>(2);
    g[11] = bad;  // row 3, column 2: block 3 of 2 x 2
    EXPECT_THAT(complaint([&] { shampoo.step(*engine, g, kRate); }),
                AllOf(HasSubstr("step 2"), HasSubstr("factor"),
                      HasSubstr("block 3"), HasSubstr("axis 0")))
        << bad;
  }
}

TEST(ShampooRefresh, SquaresThatOverflowFp32AreAnError) {
  const auto engine = make_cpu_engine();
  auto shampoo = tensor<float>(nullptr);
  std::vector<float> g = gradient<float>(1);
  g[5] = 1e20F;
  EXPECT_THAT(complaint([&] { shampoo.step(*engine, g, kRate); }),
              HasSubstr("factor that is not finite"));
}

TEST(ShampooRefresh, TellsWhichTensorOfABatch) {
  const auto engine = make_cpu_engine();
  const Dims dims = {2, 2};
  const auto rule = make_rule(
      "shampoo", {{"preset", "meta"}, {"merge", "off"}, {"beta1", "0"}},
      DType::kFp64);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> g = {1, 2, 3, 4, nan, 0, 0, 0};
  std::vector<double> out(8), left(8), inv_left(8), right(8), inv_right(8),
      failures(4);
  const canzona::Run states[] = {run_of(left.data()), run_of(inv_left.data()),
                                 run_of(right.data()), run_of(inv_right.data()),
                                 run_of(failures.data())};
  const ConstRun fields[] = {run_of(g.data())};
  EXPECT_THAT(complaint([&] {
                rule->transform(*engine, {1, kRate},
                                {.dims = dims,
                                 .count = 2,
                                 .fields = fields,
                                 .out = run_of(out.data()),
                                 .states = states});
              }),
              HasSubstr("tensor 1"));
}

}  // namespace
}  // namespace canzona::rules::refresh_test
