#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "canzona/base/test_allocations.h"
#include "canzona/base/text.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::soap_rule_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kRate = 0.01;

// Settings that reach every branch of a step.
std::vector<RuleOptions> all_kinds() {
  return {
      {{"precondition_frequency", "2"}},
      {{"precondition_frequency", "2"}, {"momentum_basis", "original"}},
      {{"precondition_frequency", "2"}, {"refresh", "eigh"}},
      {{"precondition_frequency", "2"}, {"refresh", "cholesky_qr"}},
      {{"precondition_frequency", "2"}, {"decay_form", "l2"}},
      {{"preset", "nvidia"}, {"epsilon", "0.01"}, {"nesterov", "on"}},
      {{"preset", "nvidia-kl"}, {"epsilon", "0.01"}, {"decay_form", "l2"}},
      {{"preset", "nvidia"}, {"beta1", "0"}, {"weight_decay", "0"}},
      {{"preset", "meta"}, {"beta2", "0.9"}, {"max_preconditioner_dim", "2"}},
      {{"preset", "meta"},
       {"start_step", "3"},
       {"grafting", "adam"},
       {"qr_tolerance", "0.01"}},
      {{"preset", "meta"}, {"grafting", "sgd"}, {"beta3", "0.5"}},
      {{"preset", "meta"}, {"ignored_dims", "0"}},
      {{"preset", "original"}, {"normalize_grads", "on"}},
      {{"preset", "nvidia"}, {"max_update_rms", "0.2"}},
  };
}

std::vector<float> gradient(const Dims& dims, uint64_t seed) {
  Stream stream(seed);
  std::vector<float> g(static_cast<size_t>(num_elements(dims)));
  for (float& x : g) x = static_cast<float>(stream.uniform());
  return g;
}

TestTensor<float> make(const RuleOptions& options, const Dims& dims,
                       DecompositionHook* hook = nullptr) {
  return {make_rule("soap", options, DType::kFp32), dims, gradient(dims, 1000),
          hook};
}

std::string told(const RuleOptions& options) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : options)
    parts.push_back(cat(name, "=", value));
  return join(parts, " ");
}

// Weights and all states.
std::vector<std::vector<float>> everything(const TestTensor<float>& tensor) {
  std::vector<std::vector<float>> all = {tensor.weights};
  for (const StateFact& fact : tensor.states.facts)
    all.push_back(tensor.state(fact.name));
  return all;
}

TEST(SoapRule, MovesWeightsInEveryStepButTheFirst) {
  const auto engine = make_cpu_engine();
  TestTensor<float> soap = make({}, {6, 4});
  std::vector<float> before = soap.weights;
  soap.step(*engine, gradient({6, 4}, 1), kRate);
  EXPECT_EQ(soap.weights, before);
  EXPECT_THAT(soap.update, Each(0.0F));
  for (uint64_t t = 2; t < 6; ++t) {
    before = soap.weights;
    soap.step(*engine, gradient({6, 4}, t), kRate);
    EXPECT_NE(soap.weights, before);
  }
}

TEST(SoapRule, StagesAndTheWholeStepGiveTheSameBits) {
  const auto engine = make_cpu_engine();
  for (const RuleOptions& options : all_kinds()) {
    TestTensor<float> stages = make(options, {6, 4});
    TestTensor<float> whole = make(options, {6, 4});
    for (uint64_t t = 1; t <= 6; ++t) {
      stages.step(*engine, gradient({6, 4}, t), kRate);
      whole.step_whole(*engine, gradient({6, 4}, t), kRate);
    }
    EXPECT_EQ(everything(stages), everything(whole)) << told(options);
  }
}

TEST(SoapRule, LeavesGradientsAlone) {
  const auto engine = make_cpu_engine();
  for (const RuleOptions& options : all_kinds()) {
    TestTensor<float> soap = make(options, {5, 3});
    for (uint64_t t = 1; t <= 4; ++t) {
      const std::vector<float> g = gradient({5, 3}, t);
      const std::vector<float> kept = g;
      soap.step_whole(*engine, g, kRate);
      EXPECT_EQ(g, kept) << told(options);
    }
  }
}

// Continues from copies of weights and states alone.
TEST(SoapRule, GoesOnBitByBitFromCopiedStates) {
  const auto engine = make_cpu_engine();
  for (const RuleOptions& options : all_kinds()) {
    const Dims dims = {5, 3};
    TestTensor<float> first = make(options, dims);
    for (uint64_t t = 1; t <= 7; ++t) {
      TestTensor<float> second = make(options, dims);
      second.weights = first.weights;
      second.steps = first.steps;
      for (size_t i = 0; i < first.states.facts.size(); ++i)
        std::memcpy(second.states.runs[i].data, first.states.runs[i].data,
                    static_cast<size_t>(first.states.facts[i].elements()) *
                        sizeof(float));
      const auto other_engine = make_cpu_engine();
      first.step(*engine, gradient(dims, t), kRate);
      second.step(*other_engine, gradient(dims, t), kRate);
      EXPECT_EQ(everything(first), everything(second))
          << told(options) << ", step " << t;
    }
  }
}

// Three contiguous tensors, each state contiguous too.
class Three {
 public:
  Three(const RuleOptions& options, const Dims& dims)
      : rule_(make_rule("soap", options, DType::kFp32)), dims_(dims) {
    for (const StateFact& fact : rule_->facts().tensor_states(dims)) {
      TestTensor<float> fresh = make(options, dims);
      const std::vector<float> one = fresh.state(fact.name);
      states_.emplace_back();
      for (int i = 0; i < 3; ++i)
        states_.back().insert(states_.back().end(), one.begin(), one.end());
    }
  }

  std::vector<float> step(Engine& engine, int64_t t,
                          const std::vector<float>& grads) {
    std::vector<float> out(grads.size());
    std::vector<Run> runs;
    for (auto& state : states_) runs.push_back(run_of(state.data()));
    const ConstRun field = run_of(grads.data());
    const std::vector<ConstRun> fields(
        static_cast<size_t>(rule_->facts().gather_fields()), field);
    rule_->transform(engine, {t, kRate},
                     {.dims = dims_,
                      .count = 3,
                      .fields = fields,
                      .out = run_of(out.data()),
                      .states = runs});
    return out;
  }

 private:
  std::unique_ptr<Rule> rule_;
  Dims dims_;
  std::vector<std::vector<float>> states_;
};

TEST(SoapRule, ATensorIsTheSameAloneAndInABatch) {
  const auto engine = make_cpu_engine();
  for (RuleOptions options : all_kinds()) {
    options["weight_decay"] = "0";
    const Dims dims = {5, 3};
    Three batch(options, dims);
    TestTensor<float> a = make(options, dims), b = make(options, dims),
                      c = make(options, dims);
    for (uint64_t t = 1; t <= 5; ++t) {
      std::vector<float> grads;
      std::vector<float> expected;
      for (TestTensor<float>* tensor : {&a, &b, &c}) {
        const auto g = gradient(dims, 10 * t + grads.size());
        grads.insert(grads.end(), g.begin(), g.end());
        tensor->step(*engine, g, kRate);
        expected.insert(expected.end(), tensor->update.begin(),
                        tensor->update.end());
      }
      EXPECT_EQ(batch.step(*engine, static_cast<int64_t>(t), grads), expected)
          << told(options) << ", step " << t;
    }
  }
}

// The first steps reserve everything that later ones use.
TEST(SoapRule, AllocatesNothingOnceEveryKindOfStepWasMade) {
  const auto engine = make_cpu_engine();
  for (const RuleOptions& options : all_kinds()) {
    const Dims dims = {6, 5};
    TestTensor<float> soap = make(options, dims);
    for (uint64_t t = 1; t <= 4; ++t)
      soap.step_whole(*engine, gradient(dims, t), kRate);
    const std::vector<float> g = gradient(dims, 9);
    const int64_t reserved = engine->arena().reserved();
    const int64_t before = num_allocations();
    for (int t = 5; t <= 8; ++t) soap.step_whole(*engine, g, kRate);
    EXPECT_EQ(num_allocations(), before) << told(options);
    EXPECT_EQ(engine->arena().reserved(), reserved) << told(options);
  }
}

// Records the steps at which a basis was refreshed.
class Refreshes final : public DecompositionHook {
 public:
  bool basis(const FactorId& part, Matrices, Matrices) override {
    if (part.axis == 0) steps.push_back(now);
    return true;
  }
  int64_t now = 0;
  std::vector<int64_t> steps;
};

std::vector<int64_t> refresh_steps(const RuleOptions& options, int phase) {
  const auto engine = make_cpu_engine();
  const Dims dims = {3, 3};
  Refreshes hook;
  TestTensor<float> soap = make(options, dims);
  for (hook.now = 1; hook.now <= 12; ++hook.now) {
    const std::vector<float> g =
        gradient(dims, static_cast<uint64_t>(hook.now));
    const Shard shard{.whole = dims,
                      .count = 9,
                      .grad = run_of(g.data()),
                      .weights = run_of(soap.weights.data()),
                      .states = {}};
    soap.rule().step_whole(*engine, {hook.now, kRate},
                           {.dims = dims,
                            .shards = {&shard, 1},
                            .owned = soap.states.with_owner,
                            .phase = phase,
                            .hook = &hook});
  }
  return hook.steps;
}

TEST(SoapRule, RefreshesInTheFirstStepAndThenByPeriodAndPhase) {
  const RuleOptions options = {{"precondition_frequency", "4"},
                               {"phases", "4"}};
  EXPECT_THAT(refresh_steps(options, 0), ElementsAre(1, 5, 9));
  EXPECT_THAT(refresh_steps(options, 1), ElementsAre(1, 4, 8, 12));
  EXPECT_THAT(refresh_steps(options, 3), ElementsAre(1, 2, 6, 10));
}

TEST(SoapRule, CountsEveryStepWhereTheFirstMovesWeights) {
  const RuleOptions options = {
      {"preset", "meta"}, {"precondition_frequency", "4"}, {"start_step", "3"}};
  EXPECT_THAT(refresh_steps(options, 0), ElementsAre(3, 4, 8, 12));
}

TEST(SoapRule, ToleratesABasisThatIsDiagonalEnough) {
  const auto engine = make_cpu_engine();
  for (const char* refresh : {"qr", "eigh"}) {
    TestTensor<float> soap = make({{"precondition_frequency", "1"},
                                   {"refresh", refresh},
                                   {"qr_tolerance", "1"}},
                                  {4, 4});
    soap.step(*engine, gradient({4, 4}, 1), kRate);
    const auto kept = soap.state("Q_L");
    for (uint64_t t = 2; t < 5; ++t)
      soap.step(*engine, gradient({4, 4}, t), kRate);
    EXPECT_EQ(soap.state("Q_L"), kept);
  }
}

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Applies to the update of the whole tensor, even if it is cut into blocks.
TEST(SoapRule, GivesTheUpdateTheLengthThatIsAskedFor) {
  const auto engine = make_cpu_engine();
  const auto last_rms = [&](const RuleOptions& options, int steps) {
    TestTensor<float> soap = make(options, {5, 3});
    for (uint64_t t = 1; t <= static_cast<uint64_t>(steps); ++t)
      soap.step(*engine, gradient({5, 3}, t), kRate);
    return rms(soap.update);
  };
  for (const char* longest : {"2", "1000"}) {
    const RuleOptions cut = {{"preset", "meta"},
                             {"max_preconditioner_dim", longest}};
    RuleOptions bounded = cut, loose = cut, normal = cut;
    bounded["max_update_rms"] = "0.05";
    loose["max_update_rms"] = "50";
    normal["normalize_grads"] = "on";
    EXPECT_NEAR(last_rms(bounded, 3), 0.05, 1e-6) << longest;
    EXPECT_EQ(last_rms(loose, 3), last_rms(cut, 3)) << longest;
    EXPECT_NEAR(last_rms(normal, 3), 1, 1e-6) << longest;
  }
  // The bias correction applies to the normalised quotient: sqrt(1 - 0.95^2)/(1
  // - 0.95^2) at the second update.
  EXPECT_NEAR(last_rms({{"normalize_grads", "on"}}, 3),
              1 / std::sqrt(1 - 0.95 * 0.95), 1e-6);
  EXPECT_EQ(last_rms({{"normalize_grads", "on"}}, 1), 0);
}

TEST(SoapRule, WithAllDimsIgnoredItIsAdam) {
  const auto engine = make_cpu_engine();
  TestTensor<float> ignored = make({{"ignored_dims", "0,1"}}, {4, 3});
  TestTensor<float> adam = make({{"max_preconditioner_dim", "1"}}, {4, 3});
  for (uint64_t t = 1; t <= 3; ++t) {
    ignored.step(*engine, gradient({4, 3}, t), kRate);
    adam.step(*engine, gradient({4, 3}, t), kRate);
  }
  EXPECT_EQ(ignored.weights, adam.weights);
}

TEST(SoapRule, IsAdamBeforeItsFirstBasis) {
  const auto engine = make_cpu_engine();
  const RuleOptions common = {{"first_update", "use"},
                              {"basis_includes_gradient", "on"},
                              {"epsilon_mode", "corrected"}};
  RuleOptions late = common;
  late["start_step"] = "4";
  RuleOptions never = common;
  never["max_preconditioner_dim"] = "1";
  TestTensor<float> soap = make(late, {4, 3});
  TestTensor<float> adam = make(never, {4, 3});
  for (uint64_t t = 1; t <= 4; ++t) {
    soap.step(*engine, gradient({4, 3}, t), kRate);
    adam.step(*engine, gradient({4, 3}, t), kRate);
    EXPECT_EQ(soap.weights == adam.weights, t < 4) << "step " << t;
  }
}

}  // namespace
}  // namespace canzona::rules::soap_rule_test
