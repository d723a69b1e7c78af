// Rules on a device whose memory only its engine can access, several tensors at
// once: the bits are those of each tensor alone on a CPU, steps without a
// refresh never wait, and failures affect only the tensors that failed.
#include <gmock/gmock.h>

#include <memory>

#include "canzona/linalg/test_remote_engine.h"
#include "canzona/rules/test_batch.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::rules::remote_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Values = TestBatch::Values;

constexpr double kRate = 0.01;
constexpr int64_t kCount = 5;

struct Case {
  std::string rule;
  Dims dims;
  RuleOptions options;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << c.rule << " " << canzona::to_string(c.dims);
  for (const auto& [name, value] : c.options)
    out << " " << name << "=" << value;
  return out;
}

std::unique_ptr<Rule> rule_of(const Case& c) {
  return make_rule(c.rule, c.options, DType::kFp32);
}

RuleOptions with(RuleOptions options, const RuleOptions& more) {
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

std::vector<Case> soap_cases() {
  const RuleOptions often = {{"precondition_frequency", "2"}};
  const RuleOptions cut = {{"max_preconditioner_dim", "3"},
                           {"long_sides", "cut"},
                           {"preset", "meta"}};
  const RuleOptions tolerant = {{"precondition_frequency", "1"},
                                {"qr_tolerance", "0.3"},
                                {"power_steps", "4"}};
  std::vector<Case> cases;
  for (const RuleOptions& options : std::vector<RuleOptions>{
           often,
           {{"preset", "original"}, {"precondition_frequency", "2"}},
           {{"preset", "nvidia"}},
           {{"preset", "nvidia-kl"}},
           with(often, {{"refresh", "eigh"}, {"qr_tolerance", "0.3"}}),
           with(often, {{"refresh", "cholesky_qr"}, {"power_steps", "2"}}),
           tolerant,
           with(tolerant, {{"qr_tolerance", "0.02"}, {"power_steps", "2"}}),
           with(tolerant, {{"qr_tolerance", "0.02"}, {"power_steps", "3"}}),
           with(tolerant, {{"sort", "after"}, {"kl", "on"}}),
           with(often, {{"grafting", "adam"}, {"momentum_basis", "original"}}),
           with(often, {{"grafting", "sgd"}, {"momentum_basis", "original"}}),
           with(often, {{"decay_form", "l2"}, {"l2_in_factors", "off"}}),
           with(often, {{"beta1", "0"}, {"start_step", "3"}}),
           with(often, {{"max_preconditioner_dim", "5"}}),
           with(often, {{"ignored_dims", "0"}}),
           with(often, {{"normalize_grads", "on"}, {"max_update_rms", "0.5"}}),
           with(cut, {{"max_update_rms", "0.1"}}),
           cut,
       })
    for (const Dims& dims : {Dims{6, 5}, Dims{3, 12}})
      cases.push_back({"soap", dims, options});
  cases.push_back({"soap", {9}, with(often, {{"precondition_1d", "on"}})});
  cases.push_back({"soap", {4, 3, 5}, often});
  for (const Dims& dims : {Dims{4, 150}, Dims{150, 4}})
    cases.push_back(
        {"soap", dims,
         with(often, {{"max_preconditioner_dim", "100"}, {"strips", "2"}})});
  cases.push_back({"soap", {4, 3, 5}, cut});
  return cases;
}

std::vector<Case> shampoo_cases() {
  const RuleOptions often = {{"precondition_frequency", "2"}};
  const RuleOptions cut = with(often, {{"max_preconditioner_dim", "3"}});
  std::vector<Case> cases;
  for (const char* root : {"eigen", "newton", "higher"}) {
    cases.push_back({"shampoo", {6, 5}, with(often, {{"root", root}})});
    cases.push_back({"shampoo", {7, 4}, with(cut, {{"root", root}})});
  }
  for (const char* grafting : {"none", "sgd", "adagrad", "rmsprop"})
    cases.push_back({"shampoo",
                     {6, 5},
                     with(often, {{"grafting", grafting}, {"beta1", "0"}})});
  for (const RuleOptions& variant : std::vector<RuleOptions>{
           {{"root", "pseudo"}},
           {{"root", "cans"}, {"exponent", "0.5"}},
           {{"exponent", "0,0.5"}},
           {{"kl", "on"}},
           {{"trace_scaling", "on"}, {"drop_weighting", "on"}},
           {{"classic_momentum", "0.9"}},
           {{"classic_momentum", "0.9"}, {"classic_nesterov", "on"}}}) {
    cases.push_back({"shampoo", {6, 5}, with(often, variant)});
    cases.push_back({"shampoo", {7, 4}, with(cut, variant)});
  }
  cases.push_back({"shampoo", {6, 5}, with(often, {{"perturb", "after"}})});
  cases.push_back({"shampoo", {6, 5}, with(often, {{"decay_form", "l2"}})});
  cases.push_back(
      {"shampoo", {6, 5}, {{"preset", "meta"}, {"epsilon", "1e-4"}}});
  cases.push_back({"shampoo", {6, 5}, {{"start_step", "never"}}});
  cases.push_back({"shampoo", {9}, cut});
  cases.push_back({"shampoo", {4, 3, 5}, with(cut, {{"merge", "off"}})});
  return cases;
}

std::vector<Case> other_cases() {
  std::vector<Case> cases;
  for (const char* preset :
       {"moonlight", "keller", "nvidia", "dion", "normuon", "nanochat",
        "nvidia-adamuon", "nvidia-namo", "muonh"})
    for (const Dims& dims : {Dims{6, 5}, Dims{3, 12}, Dims{2, 4, 5}})
      cases.push_back({"muon", dims, {{"preset", preset}}});
  for (const char* form : {"standard", "symmetric", "gram"})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* unsafe : {"off", "on"})
        cases.push_back({"muon",
                         {4, 12},
                         {{"newton_schulz", form},
                          {"precision", precision},
                          {"unsafe", unsafe}}});
  cases.push_back({"muon", {6, 5}, {{"decay_form", "l2"}}});
  cases.push_back({"muon", {6, 5}, {{"cautious_decay", "on"}}});
  cases.push_back({"muon",
                   {4, 3, 5},
                   {{"flatten", "first_dim"}, {"scale_shape", "last_two"}}});
  cases.push_back({"adamw", {6, 5}, {}});
  cases.push_back({"adamw", {6, 5}, {{"decay_form", "l2"}}});
  cases.push_back({"nsgd", {6, 5}, {}});
  return cases;
}

// Gradients of all kinds: dense, diagonal, zero, of rank one, tiny.
Values gradient(const Dims& dims, int64_t tensor, int64_t t) {
  Stream stream(static_cast<uint64_t>(100 * tensor + t));
  Values g(static_cast<size_t>(num_elements(dims)));
  const int64_t cols = dims.back();
  for (size_t i = 0; i < g.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    g[i] = static_cast<float>(stream.uniform());
    if (tensor == 1 && at / cols % cols != at % cols) g[i] = 0;
    if (tensor == 2 && t < 3) g[i] = 0;
    if (tensor == 3) g[i] = 0.5F;
    if (tensor == 4) g[i] *= 0x1p-40F;
  }
  return g;
}

std::vector<Values> gradients(const Dims& dims, int64_t t) {
  std::vector<Values> all;
  for (int64_t i = 0; i < kCount; ++i) all.push_back(gradient(dims, i, t));
  return all;
}

// Records one tensor after each of some steps, alone on a CPU.
class Alone {
 public:
  Alone(const Rule& rule, const Dims& dims, int64_t tensor)
      : dims_(dims), tensor_(tensor), batch_(*cpu_, rule, dims, 1) {}
  void step() {
    batch_.step({gradient(dims_, tensor_, batch_.steps() + 1)}, kRate);
  }
  TestBatch& batch() { return batch_; }

 private:
  std::unique_ptr<Engine> cpu_ = make_cpu_engine();
  Dims dims_;
  int64_t tensor_;
  TestBatch batch_;
};

void expect_bits_of_each_alone(const Case& c, Engine& engine) {
  const auto rule = rule_of(c);
  TestBatch stages(engine, *rule, c.dims, kCount);
  TestBatch whole(engine, *rule, c.dims, kCount);
  std::vector<std::unique_ptr<Alone>> alone;
  for (int64_t i = 0; i < kCount; ++i)
    alone.push_back(std::make_unique<Alone>(*rule, c.dims, i));
  for (int64_t t = 1; t <= 5; ++t) {
    stages.step(gradients(c.dims, t), kRate);
    whole.step_whole(gradients(c.dims, t), kRate);
    for (int64_t i = 0; i < kCount; ++i) {
      Alone& expected = *alone[static_cast<size_t>(i)];
      expected.step();
      const Values weights = expected.batch().weights(0);
      const auto states = expected.batch().states(0);
      ASSERT_EQ(stages.weights(i), weights) << "tensor " << i << " step " << t;
      ASSERT_EQ(stages.states(i), states) << "tensor " << i << " step " << t;
      ASSERT_EQ(whole.weights(i), weights) << "tensor " << i << " step " << t;
      ASSERT_EQ(whole.states(i), states) << "tensor " << i << " step " << t;
    }
  }
}

class Remote : public ::testing::TestWithParam<Case> {
 protected:
  // CPU algebras take one matrix at a time.
  static int64_t width() { return GetParam().rule == "muon" ? 1 : 3; }
};

TEST_P(Remote, BitsAreThoseOfEachTensorAlone) {
  RemoteEngine engine(width());
  expect_bits_of_each_alone(GetParam(), engine);
}

// Not even a rule obliges a device to implement more than it must.
TEST_P(Remote, BitsAreTheSameOnADeviceWithTheDefaultsAlone) {
  MinimalEngine engine(width());
  expect_bits_of_each_alone(GetParam(), engine);
}

INSTANTIATE_TEST_SUITE_P(Soap, Remote, ::testing::ValuesIn(soap_cases()));
INSTANTIATE_TEST_SUITE_P(Shampoo, Remote, ::testing::ValuesIn(shampoo_cases()));
INSTANTIATE_TEST_SUITE_P(Others, Remote, ::testing::ValuesIn(other_cases()));

TEST(RemoteMemoryDeathTest, IsOutOfReach) {
  RemoteEngine engine(1);
  Arena arena(engine.memory());
  const Arena::Scope scope(arena);
  volatile float* there = arena.take_array<float>(1);
  EXPECT_DEATH(*there = 1, "");
  float here = 2;
  EXPECT_THROW(engine.set_identity(matrices(&here, 1, 1), 1.0), InternalError);
}

// A step that a device repeats must not wait; a refresh may.
TEST(RemoteSteps, WaitForNothingWithoutARefresh) {
  for (const Case& c : std::vector<Case>{
           {"soap", {6, 5}, {{"precondition_frequency", "4"}}},
           {"soap",
            {6, 5},
            {{"preset", "nvidia-kl"}, {"precondition_frequency", "4"}}},
           {"soap",
            {6, 5},
            {{"preset", "meta"},
             {"grafting", "adam"},
             {"max_preconditioner_dim", "3"},
             {"precondition_frequency", "4"}}},
           {"soap",
            {6, 5},
            {{"qr_tolerance", "0.1"}, {"precondition_frequency", "4"}}},
           {"shampoo", {6, 5}, {{"precondition_frequency", "4"}}},
           {"shampoo",
            {4, 3, 5},
            {{"precondition_frequency", "4"},
             {"root", "newton"},
             {"max_preconditioner_dim", "3"}}},
           {"muon", {6, 5}, {}},
           {"adamw", {6, 5}, {}}}) {
    const auto rule = rule_of(c);
    RemoteEngine engine(c.rule == "muon" ? 1 : 3);
    TestBatch batch(engine, *rule, c.dims, kCount);
    const bool refreshes = rule->facts().period() > 1;
    int64_t waiting_steps = 0;
    for (int64_t t = 1; t <= 12; ++t) {
      const int64_t before = engine.waits();
      batch.step(gradients(c.dims, t), kRate);
      const int64_t uploads = kCount;  // of gradients
      if (engine.waits() > before + uploads) ++waiting_steps;
    }
    EXPECT_GE(waiting_steps, refreshes ? 3 : 0) << c;
    EXPECT_LE(waiting_steps, refreshes ? 4 : 0) << c;
  }
}

// Each step's products may use faster arithmetic; bases need full fp32
// precision, and roots plain products.
TEST(RemoteProducts, AreFastWhereThatIsAskedForAndHarmless) {
  class Watching final : public DecompositionHook {
   public:
    explicit Watching(const RemoteEngine& watched) : engine(watched) {}
    bool basis(const FactorId&, Matrices, Matrices) override { return see(); }
    bool inverse_root(const FactorId&, Matrices) override { return see(); }
    bool see() {
      seen.push_back(engine.products());
      return true;
    }
    const RemoteEngine& engine;
    std::vector<Products> seen;
  };
  struct Asked {
    const char* rule;
    RuleOptions options;
  };
  for (const Asked& c : std::vector<Asked>{{"soap", {}},
                                           {"shampoo", {{"root", "newton"}}},
                                           {"shampoo", {{"root", "higher"}}},
                                           {"shampoo", {{"root", "eigen"}}}}) {
    const auto rule = make_rule(
        c.rule,
        with(c.options,
             {{"precondition_frequency", "1"}, {"products", "bf16x3"}}),
        DType::kFp32);
    RemoteEngine engine(3);
    Watching hook(engine);
    TestBatch batch(engine, *rule, {4, 3}, kCount, &hook);
    for (int64_t t = 1; t <= 2; ++t) batch.step(gradients({4, 3}, t), kRate);
    EXPECT_THAT(hook.seen, Each(Products::kBf16x6)) << c.rule;
    EXPECT_FALSE(hook.seen.empty());
    EXPECT_EQ(engine.products(), Products::kPlain);
    EXPECT_GT(engine.fast_products(), 0) << c.rule;
    std::vector<Values> bad = gradients({4, 3}, 3);
    bad[1][0] = 1e20F;
    EXPECT_THROW(batch.step(bad, kRate), NumericalError);
    EXPECT_EQ(engine.products(), Products::kPlain);
  }
}

// Rejects the results of one axis of one tensor.
class Refusing final : public DecompositionHook {
 public:
  bool basis(const FactorId& part, Matrices q, Matrices) override {
    EXPECT_EQ(q.count, 1);
    return !refuses(part);
  }
  bool inverse_root(const FactorId& part, Matrices root) override {
    EXPECT_GT(root.as<float>()[0], 0);  // in host memory
    return !refuses(part);
  }
  bool refuses(const FactorId& part) const {
    return part.tensor == 3 && part.axis == 1;
  }
};

TEST(RemoteFailures, ConcernThoseThatFailed) {
  const Dims dims = {4, 3};
  for (const Case& c : std::vector<Case>{
           {"soap", dims, {{"precondition_frequency", "1"}}},
           {"shampoo", dims, {{"precondition_frequency", "1"}}}}) {
    const auto rule = rule_of(c);
    RemoteEngine engine(4);
    Refusing hook;
    TestBatch batch(engine, *rule, dims, kCount, &hook);
    TestBatch free(engine, *rule, dims, kCount);
    for (int64_t t = 1; t <= 3; ++t) {
      batch.step(gradients(dims, t), kRate);
      free.step(gradients(dims, t), kRate);
    }
    EXPECT_THAT(batch.states(3).at("refresh_failures"), ElementsAre(0, 3));
    for (int64_t i : {0, 1, 2, 4}) {
      EXPECT_EQ(batch.states(i), free.states(i)) << c << " tensor " << i;
      EXPECT_EQ(batch.weights(i), free.weights(i)) << c << " tensor " << i;
    }
    EXPECT_THAT([&] { batch.step(gradients(dims, 4), kRate); },
                ThrowsMessage<NumericalError>(
                    AllOf(HasSubstr("4 consecutive failures"),
                          HasSubstr("axis 1"), HasSubstr("tensor 3"))));
  }
}

// 7 x 5 cut at 3 has blocks 0 1 / 2 3 / 4 5; those of axis 1 are 0 2 4 and the
// short 1 3 5, so 3 is neither the first nor the last of its kind.
TEST(RemoteFailures, ConcernTheBlockThatFailed) {
  class RefusingOne final : public DecompositionHook {
    bool inverse_root(const FactorId& part, Matrices) override {
      return !(part.tensor == 3 && part.block == 3 && part.axis == 1);
    }
  };
  const auto rule = make_rule(
      "shampoo",
      {{"precondition_frequency", "1"}, {"max_preconditioner_dim", "3"}},
      DType::kFp32);
  for (int64_t width : {1, 2, 4, 100}) {
    RemoteEngine engine(width);
    RefusingOne hook;
    TestBatch batch(engine, *rule, {7, 5}, kCount, &hook);
    for (int64_t t = 1; t <= 3; ++t) batch.step(gradients({7, 5}, t), kRate);
    for (int64_t i = 0; i < kCount; ++i) {
      Values expected(12, 0);
      if (i == 3) expected[3 * 2 + 1] = 3;
      EXPECT_EQ(batch.states(i).at("refresh_failures"), expected) << width;
    }
  }
}

TEST(RemoteFailures, NameTheTensorWhoseFactorIsNotFinite) {
  const Dims dims = {4, 3};
  for (const char* name : {"soap", "shampoo"}) {
    const auto rule =
        make_rule(name, {{"precondition_frequency", "1"}}, DType::kFp32);
    RemoteEngine engine(4);
    TestBatch batch(engine, *rule, dims, kCount);
    std::vector<Values> grads = gradients(dims, 1);
    grads[4][0] = 1e20F;
    EXPECT_THAT(
        [&] { batch.step(grads, kRate); },
        ThrowsMessage<NumericalError>(AllOf(
            HasSubstr("a factor that is not finite"), HasSubstr("tensor 4"))));
  }
}

// A zero matrix has no root without damping: only that tensor keeps its old
// root.
TEST(RemoteFailures, OfOneIterationLeaveTheOthersTheirBits) {
  const Dims dims = {4, 3};
  for (const char* root : {"newton", "higher"}) {
    const Case c = {"shampoo",
                    dims,
                    {{"precondition_frequency", "1"},
                     {"root", root},
                     {"epsilon", "0"},
                     {"root_abs_epsilon", "0"},
                     {"root_rel_epsilon", "1e-3"}}};
    const auto rule = rule_of(c);
    RemoteEngine engine(4);
    TestBatch batch(engine, *rule, dims, kCount);
    for (int64_t t = 1; t <= 2; ++t) batch.step(gradients(dims, t), kRate);
    EXPECT_THAT(batch.states(2).at("refresh_failures"), ElementsAre(2, 2));
    for (int64_t i : {0, 1, 3, 4}) {
      Alone alone(*rule, dims, i);
      for (int64_t t = 1; t <= 2; ++t) alone.step();
      EXPECT_THAT(batch.states(i).at("refresh_failures"), Each(0)) << i;
      EXPECT_EQ(batch.states(i), alone.batch().states(0)) << root << i;
    }
  }
}

// Overflows of one tensor are retried in fp64, without retrying the others.
TEST(RemoteFailures, AreTriedAgainOneByOne) {
  const Dims dims = {100};
  const auto rule = make_rule("soap",
                              {{"precondition_frequency", "1"},
                               {"shampoo_beta", "0"},
                               {"precondition_1d", "on"}},
                              DType::kFp32);
  const auto cpu = make_cpu_engine();
  RemoteEngine engine(3);
  TestBatch batch(engine, *rule, dims, 3);
  TestBatch alone(*cpu, *rule, dims, 1);
  const Values large(100, 1.5e19F);
  for (int64_t t = 1; t <= 3; ++t) {
    batch.step({gradient(dims, 0, t), large, gradient(dims, 4, t)}, kRate);
    alone.step({large}, kRate);
  }
  EXPECT_THAT(batch.states(1).at("refresh_failures"), Each(0));
  EXPECT_EQ(batch.states(1), alone.states(0));
}

}  // namespace
}  // namespace canzona::rules::remote_test
