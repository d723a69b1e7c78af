#include "canzona/rules/local_optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/test_allocations.h"
#include "canzona/base/text.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::local_optimizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::unique_ptr<Engine> cpu() { return make_cpu_engine(); }

// Tensors of several shapes with their memory.
struct Model {
  std::vector<Dims> dims;
  std::vector<std::vector<float>> weights, grads;

  explicit Model(std::vector<Dims> shapes) : dims(std::move(shapes)) {
    Stream s(11);
    for (const Dims& d : dims) {
      weights.emplace_back();
      grads.emplace_back();
      for (int64_t i = 0; i < num_elements(d); ++i) {
        weights.back().push_back(static_cast<float>(s.normal()));
        grads.back().push_back(static_cast<float>(s.normal()));
      }
    }
  }

  std::vector<LocalOptimizer::Tensor> tensors() {
    std::vector<LocalOptimizer::Tensor> all;
    for (size_t i = 0; i < dims.size(); ++i)
      all.push_back({cat("layer.", i), dims[i], run_of(weights[i].data()),
                     run_of(std::as_const(grads[i]).data())});
    return all;
  }
};

const std::vector<Dims> kShapes = {{16, 40}, {40, 16}, {33, 33}, {1, 7},
                                   {7, 1},   {0, 5},   {16, 40}};

struct Case {
  const char* rule;
  RuleOptions options;
};
const std::vector<Case> kCases = {
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
    {"adamw", {}},
};

std::vector<std::vector<float>> weights_after(const Case& c, int steps,
                                              int num_lanes) {
  Model model(kShapes);
  Lanes lanes(num_lanes, cpu);
  LocalOptimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                           model.tensors(), lanes);
  for (int t = 0; t < steps; ++t) EXPECT_TRUE(optimizer.step(0.01));
  return model.weights;
}

TEST(LocalOptimizer, GivesTheSameBitsOnAnyNumberOfLanes) {
  for (const Case& c : kCases) {
    const auto alone = weights_after(c, 5, 1);
    EXPECT_EQ(weights_after(c, 5, 2), alone) << c.rule;
    EXPECT_EQ(weights_after(c, 5, 4), alone) << c.rule;
  }
}

TEST(LocalOptimizer, GivesTheSameBitsToFourCallersAtOnce) {
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

// Neighbours and place in the list do not matter.
TEST(LocalOptimizer, ATensorDoesNotSeeItsNeighbours) {
  for (const Case& c : kCases) {
    const auto together = weights_after(c, 3, 1);
    Model model(kShapes);
    Lanes lanes(1, cpu);
    auto tensors = model.tensors();
    std::reverse(tensors.begin(), tensors.end());
    tensors.resize(3);
    LocalOptimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                             tensors, lanes);
    for (int t = 0; t < 3; ++t) optimizer.step(0.01);
    EXPECT_EQ(model.weights.back(), together.back()) << c.rule;
  }
}

TEST(LocalOptimizer, TakesNoMemoryAfterTheFirstPeriod) {
  for (const Case& c : kCases) {
    Model model(kShapes);
    Lanes lanes(1, cpu);
    LocalOptimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
                             model.tensors(), lanes);
    for (int t = 0; t < 4; ++t) optimizer.step(0.01);
    const int64_t before = num_allocations();
    for (int t = 0; t < 4; ++t) optimizer.step(0.01);
    EXPECT_EQ(num_allocations(), before) << c.rule;
  }
}

TEST(LocalOptimizer, SkipsTheStepIfAGradientIsNotFinite) {
  for (const Case& c : kCases) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      Model model(kShapes);
      Lanes lanes(2, cpu);
      LocalOptimizer optimizer(make_rule(c.rule, c.options, DType::kFp32),
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
      EXPECT_FALSE(optimizer.step(0.01)) << c.rule;
      EXPECT_EQ(model.weights, weights) << c.rule;
      EXPECT_EQ(copy_states(), states) << c.rule;
      EXPECT_EQ(optimizer.steps_done(), 1);
      model.grads[2][5] = good;
      EXPECT_TRUE(optimizer.step(0.01)) << c.rule;
    }
  }
}

TEST(LocalOptimizer, NamesTheTensorThatIsNotFinite) {
  Model model(kShapes);
  model.grads[3][0] = INFINITY;
  Lanes lanes(1, cpu);
  LocalOptimizer optimizer(make_rule("adamw", {}, DType::kFp32),
                           model.tensors(), lanes, OnNonfinite::kError);
  EXPECT_THAT([&] { optimizer.step(0.1); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("layer.3"), HasSubstr("step 1"))));
}

TEST(LocalOptimizer, HandsOnWhatIsNotFiniteIfAsked) {
  Model model({{4, 4}, {4, 4}});
  model.grads[0][0] = NAN;
  Lanes lanes(1, cpu);
  LocalOptimizer optimizer(make_rule("muon", {{"device", "cpu"}}, DType::kFp32),
                           model.tensors(), lanes, OnNonfinite::kPropagate);
  EXPECT_TRUE(optimizer.step(0.1));
  EXPECT_TRUE(std::isnan(model.weights[0][5])) << "all of the matrix";
  EXPECT_FALSE(std::isnan(model.weights[1][5])) << "none of another";
}

// States that were saved and put back continue bit for bit, between any two
// steps, across refreshes.
TEST(LocalOptimizer, ContinuesFromSavedStates) {
  for (const Case& c : kCases) {
    const auto through = weights_after(c, 6, 1);
    for (int saved = 1; saved <= 5; ++saved) {
      Model first(kShapes), second(kShapes);
      Lanes lanes(1, cpu);
      LocalOptimizer before(make_rule(c.rule, c.options, DType::kFp32),
                            first.tensors(), lanes);
      for (int t = 0; t < saved; ++t) before.step(0.01);
      LocalOptimizer after(make_rule(c.rule, c.options, DType::kFp32),
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

}  // namespace
}  // namespace canzona::local_optimizer_test
