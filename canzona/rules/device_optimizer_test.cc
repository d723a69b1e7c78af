#include "canzona/rules/device_optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::device_optimizer_test {
namespace {

using Values = std::vector<std::vector<float>>;

// Tensors of several shapes, some of them equal, on a CPU.
struct Model {
  std::vector<Dims> dims = {{16, 40}, {40, 16}, {33, 33}, {1, 7},  {16, 40},
                            {7, 1},   {0, 5},   {16, 40}, {33, 33}};
  Values weights, grads;
  std::vector<std::vector<uint16_t>> rounded;

  Model() {
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

  std::vector<LocalOptimizer::Tensor> tensors() {
    std::vector<LocalOptimizer::Tensor> all;
    for (size_t i = 0; i < dims.size(); ++i)
      all.push_back({cat("layer.", i), dims[i], run_of(weights[i].data()),
                     run_of(std::as_const(grads[i]).data()),
                     rounded[i].data()});
    return all;
  }
};

struct Case {
  const char* rule;
  RuleOptions options;
};
const std::vector<Case> kCases = {
    {"muon", {{"precision", "fp32"}}},
    {"muon", {{"precision", "bf16"}}},
    {"muon", {{"precision", "bf16"}, {"unsafe", "on"}}},
    {"muon", {{"precision", "fp32"}, {"decay_form", "l2"}}},
    {"soap", {{"precondition_frequency", "2"}}},
    {"shampoo", {{"precondition_frequency", "2"}}},
    {"adamw", {}},
    {"nsgd", {}},
};

class DeviceOptimizerTest : public testing::Test {
 protected:
  DeviceOptimizer make(const Case& c, Model& model,
                       const DeviceOptimizer::Settings& settings = {}) {
    return {make_rule(c.rule, c.options, DType::kFp32),
            model.tensors(),
            {engines_[0].get(), engines_[1].get()},
            settings};
  }

  std::unique_ptr<Engine> engines_[2] = {make_cpu_engine(), make_cpu_engine()};
};

TEST_F(DeviceOptimizerTest, HasTheBitsOfTensorsDoneOneByOne) {
  for (const Case& c : kCases) {
    Model together, apart;
    Lanes lanes(1, [] { return make_cpu_engine(); });
    LocalOptimizer expected(make_rule(c.rule, c.options, DType::kFp32),
                            apart.tensors(), lanes);
    DeviceOptimizer got = make(c, together, {.most_elements = 1500});
    for (uint64_t t = 1; t <= 5; ++t) {
      together.set_grads(t);
      apart.set_grads(t);
      EXPECT_TRUE(expected.step(0.1 / static_cast<double>(t)));
      got.step(0.1 / static_cast<double>(t));
      EXPECT_FALSE(got.last_step_skipped());
    }
    EXPECT_EQ(together.weights, apart.weights) << c.rule;
    EXPECT_EQ(together.rounded, apart.rounded) << c.rule;
  }
}

TEST_F(DeviceOptimizerTest, WritesTheWeightsInBf16) {
  for (const Case& c : kCases) {
    Model model;
    DeviceOptimizer optimizer = make(c, model);
    // The first step of some rules moves nothing.
    optimizer.step(0.1);
    optimizer.step(0.1);
    EXPECT_FALSE(optimizer.last_step_skipped());
    for (size_t i = 0; i < model.dims.size(); ++i) {
      std::vector<uint16_t> expected(model.weights[i].size());
      engines_[0]->round_to_bf16(expected.data(), model.weights[i].data(),
                                 num_elements(model.dims[i]));
      EXPECT_EQ(model.rounded[i], expected) << c.rule << " " << i;
    }
  }
}

TEST_F(DeviceOptimizerTest, AGradientThatIsNotFiniteChangesNothing) {
  for (const Case& c : kCases) {
    Model skipped, without;
    DeviceOptimizer a = make(c, skipped), b = make(c, without);
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

TEST_F(DeviceOptimizerTest, UncheckedGradientsGoThrough) {
  Model model;
  model.grads[2][5] = std::numeric_limits<float>::quiet_NaN();
  DeviceOptimizer optimizer =
      make({"adamw", {}}, model, {.checks_gradients = false});
  optimizer.step(0.1);
  EXPECT_FALSE(optimizer.last_step_skipped());
  EXPECT_TRUE(std::isnan(model.weights[2][5]));
}

}  // namespace
}  // namespace canzona::device_optimizer_test
