// Tests of bad data: gradients that are not finite, and bases that cannot be
// found.
#include <gmock/gmock.h>

#include <limits>

#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::failures_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Fails where it is told to, and records the calls.
class Forced final : public DecompositionHook {
 public:
  bool basis(const FactorId& part, Matrices q, Matrices) override {
    asked.push_back(part.axis);
    if (part.axis == poisoned_axis)
      *q.as<float>() = std::numeric_limits<float>::infinity();
    return part.axis != failing_axis || part.tensor != failing_tensor;
  }
  int failing_axis = -1;
  int64_t failing_tensor = 0;
  int poisoned_axis = -1;
  std::vector<int> asked;
};

class SoapFailures : public ::testing::Test {
 protected:
  static TestTensor<float> make(const RuleOptions& options,
                                DecompositionHook* hook = nullptr,
                                Dims dims = {4, 3}) {
    const auto count = static_cast<size_t>(num_elements(dims));
    return {make_rule("soap", options, DType::kFp32), std::move(dims),
            std::vector<float>(count, 1), hook};
  }
  std::vector<float> gradient() {
    std::vector<float> g(12);
    for (float& x : g) x = static_cast<float>(stream_.uniform());
    return g;
  }
  void step(TestTensor<float>& tensor) {
    tensor.step(*engine_, gradient(), 0.01);
  }

  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  Stream stream_{3};
  Forced hook_;
};

const RuleOptions kEveryStep = {{"precondition_frequency", "1"}};

TEST_F(SoapFailures, D7AFailedRefreshKeepsTheBasisAndIsCounted) {
  TestTensor<float> soap = make(kEveryStep, &hook_);
  step(soap);
  step(soap);
  const auto kept = soap.state("Q_L");
  const auto other = soap.state("Q_R");
  const auto second = soap.state("exp_avg_sq");
  hook_.failing_axis = 0;
  step(soap);
  EXPECT_EQ(soap.state("Q_L"), kept);
  EXPECT_NE(soap.state("Q_R"), other);
  EXPECT_NE(soap.state("exp_avg_sq"), second);
  EXPECT_THAT(soap.state("refresh_failures"), ElementsAre(1, 0));
}

TEST_F(SoapFailures, D7TheFourthInARowIsAnError) {
  TestTensor<float> soap = make(kEveryStep, &hook_);
  step(soap);
  hook_.failing_axis = 1;
  for (int i = 0; i < 3; ++i) step(soap);
  EXPECT_THAT(soap.state("refresh_failures"), ElementsAre(0, 3));
  EXPECT_THAT([&] { step(soap); },
              ThrowsMessage<NumericalError>(AllOf(
                  HasSubstr("step 5"), HasSubstr("4 consecutive failures"),
                  HasSubstr("axis 1"))));
}

TEST_F(SoapFailures, ASuccessForgetsThem) {
  TestTensor<float> soap = make(kEveryStep, &hook_);
  step(soap);
  for (int round = 0; round < 3; ++round) {
    hook_.failing_axis = 0;
    for (int i = 0; i < 3; ++i) step(soap);
    hook_.failing_axis = -1;
    step(soap);
    EXPECT_THAT(soap.state("refresh_failures"), ElementsAre(0, 0));
  }
}

// Two tensors in a batch, whose states are contiguous.
TEST_F(SoapFailures, AreCountedForEachTensorOfABatch) {
  const auto rule = make_rule("soap", kEveryStep, DType::kFp32);
  const Dims dims = {4, 3};
  std::vector<std::vector<float>> states;
  std::vector<canzona::Run> runs;
  for (const StateFact& fact : rule->facts().tensor_states(dims))
    states.emplace_back(static_cast<size_t>(2 * fact.elements()));
  for (auto& state : states) runs.push_back(run_of(state.data()));
  std::vector<float> grads = gradient();
  const std::vector<float> more = gradient();
  grads.insert(grads.end(), more.begin(), more.end());
  std::vector<float> out(grads.size());
  const ConstRun fields[] = {run_of(std::as_const(grads).data())};
  hook_.failing_axis = 1;
  hook_.failing_tensor = 1;
  const auto transform = [&](int64_t t) {
    rule->transform(*engine_, {t, 0.01},
                    {.dims = dims,
                     .count = 2,
                     .fields = fields,
                     .out = run_of(out.data()),
                     .states = runs,
                     .hook = &hook_});
  };
  for (int64_t t = 1; t <= 3; ++t) transform(t);
  EXPECT_THAT(states.back(), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT([&] { transform(4); },
              ThrowsMessage<NumericalError>(HasSubstr("tensor 1")));
}

// The basis is the identity until a first one is found.
TEST_F(SoapFailures, GoesOnFromTheIdentity) {
  TestTensor<float> soap = make(kEveryStep, &hook_);
  hook_.failing_axis = 1;
  step(soap);
  EXPECT_THAT(soap.state("Q_R"), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  hook_.failing_axis = -1;
  step(soap);
  EXPECT_NE(soap.state("Q_R"), std::vector<float>({1, 0, 0, 0, 1, 0, 0, 0, 1}));
}

TEST_F(SoapFailures, ABasisThatIsNotFiniteIsAnError) {
  TestTensor<float> soap = make(kEveryStep, &hook_);
  hook_.poisoned_axis = 1;
  EXPECT_THAT([&] { step(soap); },
              ThrowsMessage<NumericalError>(
                  AllOf(HasSubstr("step 1"), HasSubstr("axis 1"),
                        HasSubstr("a basis that is not finite"))));
}

TEST_F(SoapFailures, D7AFactorThatIsNotFiniteIsNeverDecomposed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (float value : {kNan, kInf, -kInf, 1e20F}) {  // 1e20² overflows fp32
    Forced hook;
    TestTensor<float> soap = make({}, &hook);
    std::vector<float> g = gradient();
    g[5] = value;
    EXPECT_THAT([&] { soap.step(*engine_, g, 0.01); },
                ThrowsMessage<NumericalError>(
                    AllOf(HasSubstr("step 1"), HasSubstr("axis 0"),
                          HasSubstr("a factor that is not finite"))));
    EXPECT_TRUE(hook.asked.empty());
  }
}

TEST_F(SoapFailures, IsFoundAtTheNextRefresh) {
  TestTensor<float> soap = make({{"precondition_frequency", "3"}});
  step(soap);
  std::vector<float> g = gradient();
  g[0] = std::numeric_limits<float>::quiet_NaN();
  soap.step(*engine_, g, 0.01);
  step(soap);
  EXPECT_THROW(step(soap), NumericalError);
}

// Products of finite numbers that overflow fp32: the retry in fp64 finds the
// basis.
TEST_F(SoapFailures, OverflowsAreTriedAgainInFp64) {
  const RuleOptions options = {{"precondition_frequency", "1"},
                               {"shampoo_beta", "0"},
                               {"precondition_1d", "on"}};
  TestTensor<float> soap = make(options, &hook_, {100});
  const std::vector<float> g(100, 1.5e19F);
  for (int i = 0; i < 3; ++i) soap.step(*engine_, g, 0.01);
  EXPECT_THAT(soap.state("refresh_failures"), Each(0));
  EXPECT_EQ(hook_.asked.size(), 3U);
  const std::vector<float> q = soap.state("Q_L");
  double norm = 0;
  for (size_t i = 0; i < 100; ++i) {
    norm += static_cast<double>(q[i * 100]) * q[i * 100];
    EXPECT_NEAR(std::fabs(q[i * 100]), 0.1, 1e-6);
  }
  EXPECT_NEAR(norm, 1, 1e-6);
}

// Cholesky QR fails on dependent columns; Householder does not.
TEST_F(SoapFailures, D7CholeskyQrFallsBackOnHouseholder) {
  TestTensor<float> soap =
      make({{"precondition_frequency", "1"}, {"refresh", "cholesky_qr"}});
  const std::vector<float> g(12, 0.5F);  // always of rank one
  for (int i = 0; i < 4; ++i) soap.step(*engine_, g, 0.01);
  EXPECT_THAT(soap.state("refresh_failures"), Each(0));
  PlainMatrix q(4, 4);
  const std::vector<float> found = soap.state("Q_L");
  q.values.assign(found.begin(), found.end());
  PlainMatrix identity(4, 4);
  for (int64_t i = 0; i < 4; ++i) identity(i, i) = 1;
  EXPECT_LT(distance(transposed(q) * q, identity), 1e-5);
}

}  // namespace
}  // namespace canzona::rules::failures_test
