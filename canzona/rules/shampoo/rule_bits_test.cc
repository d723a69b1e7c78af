// The bits of a step may depend only on the tensor, its gradients and states.
#include <gmock/gmock.h>

#include <deque>

#include "canzona/base/test_allocations.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::rule_bits_test {
namespace {

constexpr double kRate = 0.01;

// Shapes with whole tensors and blocks, edges, vectors and three axes.
struct Case {
  Dims dims;
  RuleOptions options;
};
std::vector<Case> cases() {
  const RuleOptions quick = {{"precondition_frequency", "2"}};
  RuleOptions cut = quick;
  cut["max_preconditioner_dim"] = "3";
  RuleOptions eigen = cut;
  eigen["root"] = "eigen";
  eigen["merge"] = "off";
  std::vector<Case> cases = {
      {{6, 5}, quick}, {{7, 4}, cut}, {{9}, cut}, {{4, 3, 5}, eigen}};
  for (const RuleOptions& variant : std::vector<RuleOptions>{
           {{"exponent", "0,0.5"}, {"kl", "on"}},
           {{"kl", "on"}, {"trace_scaling", "on"}},
           {{"root", "pseudo"}, {"drop_weighting", "on"}},
           {{"root", "cans"}, {"exponent", "0.5"}},
           {{"classic_momentum", "0.9"}, {"classic_nesterov", "on"}}}) {
    RuleOptions options = cut;
    for (const auto& [name, value] : variant) options[name] = value;
    cases.push_back({{7, 4}, options});
  }
  return cases;
}

std::unique_ptr<Rule> rule_of(const Case& a_case) {
  return make_rule("shampoo", a_case.options, DType::kFp32);
}

std::vector<float> numbers(int64_t count, uint64_t seed) {
  Stream stream(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(stream.uniform());
  return values;
}

// All states of `tensor`, concatenated.
std::vector<float> all_states(const TestTensor<float>& tensor) {
  std::vector<float> all;
  for (const StateFact& fact : tensor.states.facts)
    for (float x : tensor.state(fact.name)) all.push_back(x);
  return all;
}

void copy_states(TestTensor<float>& to, const TestTensor<float>& from) {
  for (size_t i = 0; i < to.states.runs.size(); ++i)
    std::copy_n(from.states.runs[i].data, from.states.facts[i].bytes().value(),
                to.states.runs[i].data);
}

TEST(ShampooBits, AStepInStagesIsAStepAtOnce) {
  const auto engine = make_cpu_engine();
  for (const Case& c : cases()) {
    const int64_t count = num_elements(c.dims);
    TestTensor<float> stages(rule_of(c), c.dims, numbers(count, 1));
    TestTensor<float> whole(rule_of(c), c.dims, numbers(count, 1));
    for (uint64_t t = 1; t <= 5; ++t) {
      stages.step(*engine, numbers(count, 10 + t), kRate);
      whole.step_whole(*engine, numbers(count, 10 + t), kRate);
    }
    EXPECT_EQ(stages.weights, whole.weights);
    EXPECT_EQ(all_states(stages), all_states(whole));
  }
}

TEST(ShampooBits, GoOnFromStatesThatWereSaved) {
  const auto engine = make_cpu_engine();
  const auto other = make_cpu_engine();
  for (const Case& c : cases()) {
    const int64_t count = num_elements(c.dims);
    for (uint64_t saved_after = 0; saved_after <= 5; ++saved_after) {
      TestTensor<float> first(rule_of(c), c.dims, numbers(count, 1));
      for (uint64_t t = 1; t <= saved_after; ++t)
        first.step(*engine, numbers(count, 10 + t), kRate);
      TestTensor<float> second(rule_of(c), c.dims, first.weights);
      copy_states(second, first);
      second.steps = first.steps;
      for (uint64_t t = saved_after + 1; t <= 6; ++t) {
        first.step(*engine, numbers(count, 10 + t), kRate);
        second.step(*other, numbers(count, 10 + t), kRate);
      }
      EXPECT_EQ(first.weights, second.weights);
      EXPECT_EQ(all_states(first), all_states(second));
    }
  }
}

TEST(ShampooBits, DoNotDependOnTheBatch) {
  constexpr int64_t kCount = 3;
  const auto engine = make_cpu_engine();
  for (const Case& c : cases()) {
    const auto size = static_cast<size_t>(num_elements(c.dims));
    const auto rule = rule_of(c);
    std::deque<TestTensor<float>> alone;
    for (uint64_t i = 0; i < kCount; ++i)
      alone.emplace_back(rule_of(c), c.dims, std::vector<float>(size));
    // Its states, three concatenated.
    std::vector<std::vector<float>> states;
    for (const StateFact& fact : alone[0].states.facts) {
      states.emplace_back();
      for (int64_t i = 0; i < kCount; ++i)
        for (float x : alone[0].state(fact.name)) states.back().push_back(x);
    }
    std::vector<canzona::Run> runs;
    for (std::vector<float>& state : states)
      runs.push_back(run_of(state.data()));
    for (uint64_t t = 1; t <= 5; ++t) {
      std::vector<float> grads, out(size * kCount);
      for (uint64_t i = 0; i < kCount; ++i) {
        const std::vector<float> g =
            numbers(static_cast<int64_t>(size), 100 * i + t);
        alone[i].step(*engine, g, kRate);
        grads.insert(grads.end(), g.begin(), g.end());
      }
      const ConstRun fields[] = {run_of(std::as_const(grads).data())};
      rule->transform(*engine, {static_cast<int64_t>(t), kRate},
                      {.dims = c.dims,
                       .count = kCount,
                       .fields = fields,
                       .out = run_of(out.data()),
                       .states = runs});
      for (size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(std::vector<float>(out.begin() + i * size,
                                     out.begin() + (i + 1) * size),
                  alone[i].update)
            << "tensor " << i << " step " << t;
    }
  }
}

TEST(ShampooBits, GradientsStayAsTheyAre) {
  const auto engine = make_cpu_engine();
  for (const Case& c : cases()) {
    for (const char* form : {"decoupled", "l2"}) {
      Case decayed = c;
      decayed.options["decay_form"] = form;
      const int64_t count = num_elements(c.dims);
      TestTensor<float> tensor(rule_of(decayed), c.dims, numbers(count, 1));
      const std::vector<float> grad = numbers(count, 2);
      const std::vector<float> before = grad;
      for (int t = 1; t <= 4; ++t) tensor.step_whole(*engine, grad, kRate);
      EXPECT_EQ(grad, before);
    }
  }
}

TEST(ShampooBits, FactorsAndRootsAreSymmetric) {
  const auto engine = make_cpu_engine();
  TestTensor<float> tensor(
      make_rule("shampoo", {{"precondition_frequency", "2"}}, DType::kFp32),
      {6, 5}, numbers(30, 1));
  for (uint64_t t = 1; t <= 4; ++t) tensor.step(*engine, numbers(30, t), kRate);
  for (const char* name : {"L", "inv_L"}) {
    const std::vector<float> f = tensor.state(name);
    for (size_t i = 0; i < 6; ++i)
      for (size_t j = 0; j < i; ++j) EXPECT_EQ(f[6 * i + j], f[6 * j + i]);
  }
}

TEST(ShampooMemory, IsTakenOnce) {
  const auto engine = make_cpu_engine();
  for (const Case& c : cases()) {
    const int64_t count = num_elements(c.dims);
    const std::vector<float> grad = numbers(count, 2);
    TestTensor<float> tensor(rule_of(c), c.dims, numbers(count, 1));
    for (int t = 1; t <= 4; ++t) tensor.step_whole(*engine, grad, kRate);
    const int64_t before = num_allocations();
    for (int t = 5; t <= 10; ++t) tensor.step_whole(*engine, grad, kRate);
    EXPECT_EQ(num_allocations(), before) << to_string(c.dims);
  }
}

// A phase delays the whole schedule: no refresh comes before start_step.
TEST(ShampooPhases, SpreadRefreshesOverThePeriod) {
  constexpr int kPeriod = 4;
  const auto engine = make_cpu_engine();
  const RuleOptions options = {
      {"precondition_frequency", "4"}, {"start_step", "8"}, {"phases", "4"}};
  for (int phase = 0; phase < kPeriod; ++phase) {
    TestTensor<float> tensor(make_rule("shampoo", options, DType::kFp32),
                             {3, 2}, numbers(6, 1));
    std::vector<int> refreshes;
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> before = tensor.state("inv_L");
      const std::vector<float> grad = numbers(6, static_cast<uint64_t>(t));
      const Dims dims = {3, 2};
      const Shard shard{.whole = dims,
                        .count = 6,
                        .grad = run_of(grad.data()),
                        .weights = run_of(tensor.weights.data()),
                        .states = {}};
      tensor.rule().step_whole(*engine, {t, kRate},
                               {.dims = dims,
                                .shards = {&shard, 1},
                                .owned = tensor.states.with_owner,
                                .phase = phase});
      if (tensor.state("inv_L") != before) refreshes.push_back(t);
    }
    const int first = phase == 0 ? 8 : 8 + kPeriod - phase;
    std::vector<int> expected;
    for (int t = first; t <= 20; t += kPeriod) expected.push_back(t);
    EXPECT_EQ(refreshes, expected) << "phase " << phase;
    for (int t : refreshes) EXPECT_EQ((t + phase) % kPeriod, 0);
  }
}

}  // namespace
}  // namespace canzona::rules::rule_bits_test
