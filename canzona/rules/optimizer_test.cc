#include "canzona/rules/optimizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/test_allocations.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_remote_engine.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::optimizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::unique_ptr<Engine> cpu() { return make_cpu_engine(); }

using Values = std::vector<std::vector<float>>;

const std::vector<Dims> kShapes = {{16, 40}, {40, 16}, {33, 33},
                                   {1, 7},   {16, 40}, {7, 1},
                                   {0, 5},   {16, 40}, {33, 33}};

// Tensors of several shapes, some equal, with their memory.
struct Model {
  std::vector<Dims> dims;
  Values weights, grads;
  std::vector<std::vector<uint16_t>> rounded;

  explicit Model(std::vector<Dims> shapes = kShapes) : dims(std::move(shapes)) {
    Stream s(11);
    for (const Dims& d : dims) {
      const auto size = static_cast<size_t>(num_elements(d));
      weights.emplace_back(size);
      grads.emplace_back(size);
      rounded.emplace_back(size);
      for (float& x : weights.back()) x = static_cast<float>(s.normal());
    }
    set_grads(1);
  }

  void set_grads(uint64_t seed) {
    Stream s(seed);
    for (auto& grad : grads)
      for (float& x : grad) x = static_cast<float>(s.normal());
  }

  std::vector<Optimizer::Tensor> tensors() {
    std::vector<Optimizer::Tensor> all;
    for (size_t i = 0; i < dims.size(); ++i)
      all.push_back({cat("layer.", i), dims[i], run_of(weights[i].data()),
                     run_of(std::as_const(grads[i]).data()),
                     rounded[i].data()});
    return all;
  }
};

struct Case {
  std::string rule;
  RuleOptions options;
};
const std::vector<Case> kNamedCases = {
    {"muon", {{"device", "cpu"}, {"precision", "fp32"}}},
    {"muon", {{"device", "cpu"}, {"precision", "bf16"}}},
    {"muon", {{"device", "cpu"}, {"precision", "bf16"}, {"unsafe", "on"}}},
    {"soap", {{"precondition_frequency", "2"}}},
    {"shampoo", {{"precondition_frequency", "2"}}},
    {"muon", {{"device", "cpu"}, {"cautious_decay", "on"}}},
    {"soap",
     {{"precondition_frequency", "2"},
      {"ignored_dims", "1"},
      {"normalize_grads", "on"},
      {"max_update_rms", "0.5"}}},
    {"shampoo",
     {{"precondition_frequency", "2"},
      {"root", "pseudo"},
      {"kl", "on"},
      {"trace_scaling", "on"},
      {"classic_momentum", "0.9"},
      {"classic_nesterov", "on"}}},
    {"shampoo",
     {{"precondition_frequency", "2"},
      {"root", "cans"},
      {"exponent", "0.5,0"},
      {"drop_weighting", "on"}}},
    {"muon", {{"precision", "fp32"}, {"decay_form", "l2"}}},
    {"muon", {{"device", "cpu"}, {"preset", "nanochat"}}},
    {"muon", {{"device", "cpu"}, {"preset", "normuon"}}},
    {"muon",
     {{"precision", "fp32"},
      {"second_moment", "adamuon"},
      {"renorm", "on"},
      {"constraint", "hyperball"},
      {"cautious_decay", "on"}}},
    {"muon",
     {{"precision", "fp32"},
      {"second_moment", "namo"},
      {"equilibrate", "rows"},
      {"constraint", "hyperball"},
      {"constraint_radius", "3"}}},
};

// Every rule that no case names is tested with its defaults.
std::vector<Case> all_cases() {
  std::vector<Case> cases = kNamedCases;
  for (const RuleEntry& entry : rule_table())
    if (std::ranges::find(cases, entry.name, &Case::rule) == cases.end())
      cases.push_back({entry.name, {}});
  return cases;
}
const std::vector<Case> kCases = all_cases();

Values weights_after(const Case& c, int steps, int num_lanes) {
  Model model;
  Lanes lanes(num_lanes, cpu);
  Optimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                      model.tensors(), lanes);
  for (int t = 0; t < steps; ++t) optimizer.step(0.01);
  EXPECT_EQ(optimizer.steps_done(), steps);
  return model.weights;
}

TEST(Optimizer, GivesTheSameBitsOnAnyNumberOfLanes) {
  for (const Case& c : kCases) {
    const auto alone = weights_after(c, 5, 1);
    EXPECT_EQ(weights_after(c, 5, 2), alone) << c.rule;
    EXPECT_EQ(weights_after(c, 5, 4), alone) << c.rule;
  }
}

TEST(Optimizer, GivesTheSameBitsToFourCallersAtOnce) {
  for (const Case& c : kCases) {
    const auto alone = weights_after(c, 3, 1);
    std::vector<std::vector<std::vector<float>>> results(4);
    std::vector<std::thread> callers;
    for (auto& result : results)
      callers.emplace_back([&] { result = weights_after(c, 3, 1); });
    for (std::thread& caller : callers) caller.join();
    for (const auto& result : results) EXPECT_EQ(result, alone) << c.rule;
  }
}

// A tensor's result depends neither on its neighbours nor on its position.
TEST(Optimizer, ATensorDoesNotSeeItsNeighbours) {
  for (const Case& c : kCases) {
    const auto together = weights_after(c, 3, 1);
    Model model;
    Lanes lanes(1, cpu);
    auto tensors = model.tensors();
    std::reverse(tensors.begin(), tensors.end());
    tensors.resize(3);
    Optimizer optimizer(make_rule(c.rule, c.options, DType::kFp32), tensors,
                        lanes);
    for (int t = 0; t < 3; ++t) optimizer.step(0.01);
    EXPECT_EQ(model.weights.back(), together.back()) << c.rule;
  }
}

TEST(Optimizer, TakesNoMemoryAfterTheFirstPeriod) {
  for (const Case& c : kCases) {
    Model model;
    Lanes lanes(1, cpu);
    Optimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                        model.tensors(), lanes);
    for (int t = 0; t < 4; ++t) optimizer.step(0.01);
    const int64_t before = num_allocations();
    for (int t = 0; t < 4; ++t) optimizer.step(0.01);
    EXPECT_EQ(num_allocations(), before) << c.rule;
  }
}

TEST(Optimizer, SkipsTheStepIfAGradientIsNotFinite) {
  for (const Case& c : kCases) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      Model model;
      Lanes lanes(2, cpu);
      Optimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                          model.tensors(), lanes);
      optimizer.step(0.01);
      const auto weights = model.weights;
      std::vector<std::vector<float>> states;
      const auto copy_states = [&] {
        std::vector<std::vector<float>> copies;
        for (size_t i = 0; i < kShapes.size(); ++i) {
          const TensorStates& s = optimizer.states(i);
          for (size_t k = 0; k < s.runs.size(); ++k) {
            const auto* data = reinterpret_cast<const float*>(s.runs[k].data);
            copies.emplace_back(data, data + s.facts[k].elements());
          }
        }
        return copies;
      };
      states = copy_states();
      const float good = model.grads[2][5];
      model.grads[2][5] = bad;
      optimizer.step(0.01);
      EXPECT_TRUE(optimizer.last_step_skipped()) << c.rule;
      EXPECT_EQ(optimizer.last_nonfinite(), "layer.2") << c.rule;
      EXPECT_EQ(model.weights, weights) << c.rule;
      EXPECT_EQ(copy_states(), states) << c.rule;
      EXPECT_EQ(optimizer.steps_done(), 1);
      model.grads[2][5] = good;
      optimizer.step(0.01);
      EXPECT_FALSE(optimizer.last_step_skipped()) << c.rule;
    }
  }
}

TEST(Optimizer, NamesTheTensorThatIsNotFinite) {
  Model model;
  model.grads[3][0] = INFINITY;
  Lanes lanes(1, cpu);
  Optimizer optimizer(make_rule("adamw", {}, DType::kFp32), model.tensors(),
                      lanes, {.on_nonfinite = OnNonfinite::kError});
  EXPECT_THAT([&] { optimizer.step(0.1); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("layer.3"), HasSubstr("step 1"))));
}

TEST(Optimizer, HandsOnWhatIsNotFiniteIfAsked) {
  Model model({{4, 4}, {4, 4}});
  model.grads[0][0] = NAN;
  Lanes lanes(1, cpu);
  Optimizer optimizer(make_rule("muon", {{"device", "cpu"}}, DType::kFp32),
                      model.tensors(), lanes,
                      {.on_nonfinite = OnNonfinite::kPropagate});
  optimizer.step(0.1);
  EXPECT_FALSE(optimizer.last_step_skipped());
  EXPECT_TRUE(std::isnan(model.weights[0][5])) << "all of the matrix";
  EXPECT_FALSE(std::isnan(model.weights[1][5])) << "none of another";
}

// Runs continue bit for bit from saved and restored states, between any two
// steps, across refreshes.
TEST(Optimizer, ContinuesFromSavedStates) {
  for (const Case& c : kCases) {
    const auto through = weights_after(c, 6, 1);
    for (int saved = 1; saved <= 5; ++saved) {
      Model first, second;
      Lanes lanes(1, cpu);
      Optimizer before(make_rule(c.rule, c.options, DType::kFp32),
                       first.tensors(), lanes);
      for (int t = 0; t < saved; ++t) before.step(0.01);
      Optimizer after(make_rule(c.rule, c.options, DType::kFp32),
                      second.tensors(), lanes);
      for (size_t i = 0; i < kShapes.size(); ++i) {
        const TensorStates& from = before.states(i);
        const TensorStates& to = after.states(i);
        for (size_t k = 0; k < from.runs.size(); ++k)
          std::copy_n(from.runs[k].data, from.facts[k].elements() * 4,
                      to.runs[k].data);
        std::copy(first.weights[i].begin(), first.weights[i].end(),
                  second.weights[i].begin());
      }
      after.resume_after(saved);
      for (int t = saved; t < 6; ++t) after.step(0.01);
      EXPECT_EQ(second.weights, through) << c.rule << " saved after " << saved;
    }
  }
}

class OnEngines : public testing::Test {
 protected:
  Optimizer make(const Case& c, Model& model,
                 const OptimizerSettings& settings = {}) {
    return {make_rule(c.rule, c.options, DType::kFp32),
            model.tensors(),
            {engines_[0].get(), engines_[1].get()},
            settings};
  }

  std::unique_ptr<Engine> engines_[2] = {make_cpu_engine(), make_cpu_engine()};
};

TEST_F(OnEngines, HasTheBitsOfLanes) {
  for (const Case& c : kCases) {
    Model together, apart;
    Lanes lanes(1, [] { return make_cpu_engine(); });
    Optimizer expected(make_rule(c.rule, c.options, DType::kFp32),
                       apart.tensors(), lanes);
    Optimizer got = make(c, together, {.most_elements = 1500});
    for (uint64_t t = 1; t <= 5; ++t) {
      together.set_grads(t);
      apart.set_grads(t);
      expected.step(0.1 / static_cast<double>(t));
      got.step(0.1 / static_cast<double>(t));
      EXPECT_FALSE(got.last_step_skipped());
    }
    EXPECT_EQ(together.weights, apart.weights) << c.rule;
    EXPECT_EQ(together.rounded, apart.rounded) << c.rule;
  }
}

TEST_F(OnEngines, WritesTheWeightsInBf16) {
  for (const Case& c : kCases) {
    Model model;
    Optimizer optimizer = make(c, model);
    // The first step of some rules changes no weights.
    optimizer.step(0.1);
    optimizer.step(0.1);
    EXPECT_FALSE(optimizer.last_step_skipped());
    for (size_t i = 0; i < model.dims.size(); ++i) {
      std::vector<uint16_t> expected(std::ssize(model.weights[i]));
      engines_[0]->round_weights(expected.data(), model.weights[i].data(),
                                 num_elements(model.dims[i]));
      EXPECT_EQ(model.rounded[i], expected) << c.rule << " " << i;
    }
  }
}

TEST_F(OnEngines, AGradientThatIsNotFiniteChangesNothing) {
  for (const Case& c : kCases) {
    Model skipped, without;
    Optimizer a = make(c, skipped), b = make(c, without);
    for (uint64_t t = 1; t <= 4; ++t) {
      skipped.set_grads(t);
      without.set_grads(t);
      if (t == 3) {
        skipped.grads[4][17] = std::numeric_limits<float>::quiet_NaN();
        skipped.grads[5][0] = std::numeric_limits<float>::infinity();
        a.step(0.1);
        EXPECT_TRUE(a.last_step_skipped());
        EXPECT_EQ(a.last_nonfinite(), "layer.4");
        EXPECT_EQ(a.steps_done(), 2);
        skipped.set_grads(t);
      }
      a.step(0.1);
      b.step(0.1);
    }
    EXPECT_EQ(a.steps_done(), 4);
    EXPECT_EQ(skipped.weights, without.weights) << c.rule;
  }
}

TEST_F(OnEngines, UncheckedGradientsGoThrough) {
  Model model;
  model.grads[2][5] = std::numeric_limits<float>::quiet_NaN();
  Optimizer optimizer =
      make({"adamw", {}}, model, {.on_nonfinite = OnNonfinite::kPropagate});
  optimizer.step(0.1);
  EXPECT_FALSE(optimizer.last_step_skipped());
  EXPECT_TRUE(std::isnan(model.weights[2][5]));
}

// On a device that processes several tensors at once.
template <class RemoteDevice>
void expect_bits_of_tensors_done_one_by_one() {
  for (const Case& c : kCases) {
    // CPU algebras take one matrix at a time.
    RemoteDevice engine(std::string(c.rule) == "muon" ? 1 : 3);
    EngineMemory device(engine);
    Model model;
    std::deque<TestTensor<float>> alone;
    std::vector<Optimizer::Tensor> tensors = model.tensors();
    std::vector<canzona::Run> grads;
    for (size_t i = 0; i < tensors.size(); ++i) {
      alone.emplace_back(make_rule(c.rule, c.options, DType::kFp32),
                         model.dims[i], model.weights[i]);
      grads.push_back(device.put(model.grads[i]));
      tensors[i].weights = device.put(model.weights[i]);
      tensors[i].grad = grads[i];
      tensors[i].rounded = nullptr;
    }
    Optimizer together(make_rule(c.rule, c.options, DType::kFp32), tensors,
                       {&engine}, {.most_elements = 1500});
    const auto cpu_engine = cpu();
    for (uint64_t t = 1; t <= 5; ++t) {
      model.set_grads(t);
      for (size_t i = 0; i < grads.size(); ++i) {
        device.set(grads[i], model.grads[i]);
        alone[i].step(*cpu_engine, model.grads[i], 0.1);
      }
      together.step(0.1);
    }
    EXPECT_EQ(together.steps_done(), 5);
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(device.get<float>(tensors[i].weights.data,
                                  std::ssize(model.weights[i])),
                alone[i].weights)
          << c.rule << " " << i;
  }
}

TEST(OptimizerBatches, HaveTheBitsOfTensorsDoneOneByOne) {
  expect_bits_of_tensors_done_one_by_one<RemoteEngine>();
}

TEST(OptimizerBatches, HaveThemOnADeviceWithTheDefaultsAlone) {
  expect_bits_of_tensors_done_one_by_one<MinimalEngine>();
}

// Tensors stored in pieces: the first in three, the second in one.
TEST(TensorBatch, PiecesHaveTheBitsOfWholeTensors) {
  const Dims dims = {6, 10};
  const auto engine = cpu();
  for (const Case& c : kCases) {
    const auto rule = make_rule(c.rule, c.options, DType::kFp32);
    Values after[2];
    for (const bool cut : {false, true}) {
      Model model({dims, dims});
      Arena memory;
      const Arena::Scope scope(memory);
      const auto states = make_states(*engine, *rule, dims, 2, memory);
      TensorBatch batch(*rule, dims);
      const auto add = [&](size_t tensor, int64_t begin, int64_t end) {
        std::vector<canzona::Run> parts;
        for (canzona::Run state : states[tensor].with_shard)
          parts.push_back(advanced(state, begin));
        batch.add(
            {.whole = dims,
             .count = end - begin,
             .grad = run_of(std::as_const(model.grads[tensor]).data() + begin),
             .weights = run_of(model.weights[tensor].data() + begin),
             .states = parts});
      };
      const std::vector<int64_t> ends =
          cut ? std::vector<int64_t>{7, 8, 60} : std::vector<int64_t>{60};
      int64_t begin = 0;
      for (int64_t end : ends) add(0, std::exchange(begin, end), end);
      add(1, 0, 60);
      for (canzona::Run state : states[0].with_owner) batch.add_owned(state);
      for (int64_t t = 1; t <= 5; ++t) {
        model.set_grads(static_cast<uint64_t>(t));
        batch.step(*engine, {t, 0.1});
      }
      after[cut] = model.weights;
    }
    EXPECT_EQ(after[1], after[0]) << c.rule;
    EXPECT_NE(after[0], Model({dims, dims}).weights) << c.rule;
  }
}

}  // namespace
}  // namespace canzona::rules::optimizer_test
