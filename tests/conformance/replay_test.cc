#include "tests/conformance/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/tensor_memory.h"
#include "tests/conformance/test_fixture.h"
#include "tests/conformance/translate.h"

namespace canzona::tests::replay_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Findings replayed(const TestFixture& f) {
  return replay(*make_cpu_engine(), f.read(), {});
}

TEST(Replay, AgreesWithAStepDoneByHand) {
  const Findings findings = replayed(adamw_fixture());
  EXPECT_TRUE(findings.passed()) << findings.reason();
}

// A rule without a vocabulary of its own: the fixture has the option's name.
// The momentum is half the gradient, of length 2, and is scaled to length 2.
TEST(Replay, ReadsTheOwnWordsOfAnyRule) {
  TestFixture f = adamw_fixture();
  f.metadata["rule"] = "nsgd";
  f.metadata["preset"] = "by hand";
  f.metadata["tolerance"] = R"({"param": 1e-12, "momentum": 0})";
  f.metadata["options"] =
      R"({"lr": 0.5, "weight_decay": 0.25, "nsgd.momentum": 0.5})";
  f.tensors = {{"param.0", f64({2, 2}, {8, -8, 8, 8})},
               {"grad.1", f64({2, 2}, {2, -2, 2, -2})},
               {"param.1", f64({2, 2}, {6.5, -6.5, 6.5, 7.5})},
               {"momentum.1", f64({2, 2}, {1, -1, 1, -1})}};
  EXPECT_TRUE(replayed(f).passed()) << replayed(f).reason();
  f.metadata["options"] =
      R"({"lr": 0.5, "weight_decay": 0.25, "nsgd.momentu": 0.5})";
  EXPECT_THROW(replayed(f), Unsupported);
}

TEST(Replay, TellsWhichTensorIsWrong) {
  TestFixture f = adamw_fixture();
  f.tensors["exp_avg.1"] = f64({2}, {1, 2.5});
  const Findings findings = replayed(f);
  EXPECT_FALSE(findings.passed());
  EXPECT_THAT(findings.reason(), HasSubstr("exp_avg.1 deviates by 0.2"));
}

TEST(Replay, NothingIsComparedUnderANullTolerance) {
  TestFixture f = adamw_fixture();
  f.metadata["tolerance"] =
      R"({"param": 1e-12, "exp_avg": null, "exp_avg_sq": 1e-12})";
  f.tensors["exp_avg.1"] = f64({2}, {100, 100});
  EXPECT_TRUE(replayed(f).passed()) << replayed(f).reason();
}

TEST(Replay, ATensorThatTheRuleDoesNotHaveIsAFailure) {
  TestFixture f = adamw_fixture();
  f.metadata["tolerance"] = R"({"param": 1, "exp_avg": 1, "exp_avg_sq": 1,
                                "momentum": 1})";
  f.tensors["momentum.1"] = f64({2}, {0, 0});
  EXPECT_THAT(replayed(f).reason(), HasSubstr("no momentum.1"));
}

TEST(Replay, ATensorWithoutToleranceIsAFaultOfTheFile) {
  TestFixture f = adamw_fixture();
  f.metadata["tolerance"] = R"({"param": 1})";
  EXPECT_THROW(replayed(f), UsageError);
}

TEST(Replay, StatesThatWouldFillTheMemoryAreRefused) {
  // A vector of 20,000 elements with a factor of 400,000,000.
  TestFixture f = adamw_fixture();
  f.metadata["rule"] = "shampoo";
  f.metadata["options"] = R"json({"lr": 0.5, "weight_decay": 0,
    "decay_form": "decoupled", "eps": 1e-4, "shampoo.bias_correction": true,
    "shampoo.frequency": 1, "shampoo.start": 1, "shampoo.beta1": 0,
    "shampoo.beta2": 1, "shampoo.beta3": 0,
    "shampoo.max_preconditioner_dim": 100000, "shampoo.merge": 2,
    "shampoo.grafting": "none", "shampoo.exponent": "1/(2*order)",
    "shampoo.root": "eigen"})json";
  const std::vector<double> many(20'000, 1);
  f.tensors.clear();
  for (const char* name : {"param.0", "grad.1", "param.1"})
    f.tensors[name] = f64({20'000}, many);
  EXPECT_THROW(replayed(f), UsageError);
}

TEST(TensorMemory, TellsWhichBitsDiffer) {
  const auto rule = make_rule("muon", {{"device", "cpu"}}, DType::kFp32);
  const auto engine = make_cpu_engine();
  TensorMemory a(*engine, *rule, {2, 3});
  TensorMemory b(*engine, *rule, {2, 3});
  EXPECT_EQ(a.difference(b), "");
  a.set(a.state(0), std::vector<double>{0, 0, 0, 0, 0, 1});
  EXPECT_EQ(a.difference(b), "state momentum");
  b.set(b.weights(), std::vector<double>{-0.0, 0, 0, 0, 0, 0});
  EXPECT_EQ(a.difference(b), "weights");
}

TEST(TensorMemory, BeginsAsTheFactsSay) {
  const auto rule = make_rule("soap", {{"preset", "original"}}, DType::kFp64);
  const auto engine = make_cpu_engine();
  TensorMemory memory(*engine, *rule, {2, 3});
  bool found = false;
  for (size_t i = 0; i < memory.states().size(); ++i)
    if (memory.states()[i].name == "Q_L") {
      found = true;
      EXPECT_THAT(memory.values(memory.state(i), 4), ElementsAre(1, 0, 0, 1));
    }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace canzona::tests::replay_test
