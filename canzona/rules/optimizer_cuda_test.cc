// The optimizer on a GPU: replayed, issued anew, and tensor by tensor.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/optimizer.h"
#include "canzona/rules/test_device.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::rules::optimizer_cuda_test {
namespace {

using Values = std::vector<std::vector<float>>;

struct Case {
  const char* name;
  const char* rule;
  RuleOptions options;
};
const std::vector<Case> kCases = {
    {"muon_fp16", "muon", {}},
    {"muon_bf16", "muon", {{"precision", "bf16"}}},
    {"muon_fp32", "muon", {{"precision", "fp32"}}},
    {"muon_l2", "muon", {{"decay_form", "l2"}}},
    {"muon_schatten4",
     "muon",
     {{"coefficients", "minimax4"}, {"normalization", "schatten4"}}},
    {"nanochat", "muon", {{"preset", "nanochat"}}},
    {"normuon", "muon", {{"preset", "normuon"}}},
    {"adamuon", "muon", {{"preset", "nvidia-adamuon"}}},
    {"namo", "muon", {{"preset", "nvidia-namo"}}},
    {"muonh", "muon", {{"preset", "muonh"}}},
    {"soap", "soap", {{"precondition_frequency", "3"}}},
    {"shampoo", "shampoo", {{"precondition_frequency", "3"}}},
    {"adamw", "adamw", {}},
};

// Tensors of several shapes, some equal, on the engine's device.
struct Model {
  std::vector<Dims> dims = {{96, 160}, {160, 96}, {65, 65},  {1, 7},
                            {96, 160}, {7, 1},    {96, 160}, {65, 65}};
  EngineMemory device;
  std::vector<Optimizer::Tensor> tensors;

  explicit Model(Engine& engine) : device(engine) {
    Stream s(11);
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto count = static_cast<size_t>(num_elements(dims[i]));
      std::vector<float> weights(count);
      for (float& x : weights) x = static_cast<float>(s.normal());
      tensors.push_back({cat("layer.", i), dims[i], device.put(weights),
                         device.put(std::vector<float>(count)),
                         device.rounded(num_elements(dims[i]))});
    }
  }

  void set_grads(uint64_t seed, size_t bad = 99) {
    Stream s(seed);
    for (size_t i = 0; i < dims.size(); ++i) {
      std::vector<float> grad(static_cast<size_t>(num_elements(dims[i])));
      for (float& x : grad) x = static_cast<float>(s.normal());
      if (i == bad) grad.back() = std::numeric_limits<float>::infinity();
      device.set(
          Run{const_cast<std::byte*>(tensors[i].grad.data), DType::kFp32},
          grad);
    }
  }

  Values weights() {
    Values all;
    for (size_t i = 0; i < dims.size(); ++i)
      all.push_back(
          device.get<float>(tensors[i].weights.data, num_elements(dims[i])));
    return all;
  }
  std::vector<std::vector<uint16_t>> rounded() {
    std::vector<std::vector<uint16_t>> all;
    for (size_t i = 0; i < dims.size(); ++i)
      all.push_back(device.get<uint16_t>(
          reinterpret_cast<const std::byte*>(tensors[i].rounded),
          num_elements(dims[i])));
    return all;
  }
};

// Returns the first difference between two runs; empty if there is none.
std::string difference(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < a[i].size(); ++k)
      if (std::bit_cast<uint32_t>(a[i][k]) != std::bit_cast<uint32_t>(b[i][k]))
        return cat("tensor ", i, " element ", k, ": ", a[i][k], " and ",
                   b[i][k]);
  return "";
}

class OnGpu : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    CANZONA_NEEDS_GPU();
    for (auto& engine : engines_) engine = make_cuda_engine();
  }
  std::unique_ptr<Rule> rule() const {
    return make_rule(GetParam().rule, GetParam().options, DType::kFp32, "cuda");
  }
  static double rate(uint64_t step) { return 0.1 / static_cast<double>(step); }

  Values after(int steps, bool repeats, size_t num_engines) {
    Model model(*engines_[0]);
    std::vector<Engine*> engines;
    for (size_t i = 0; i < num_engines; ++i)
      engines.push_back(engines_[i].get());
    Optimizer optimizer(rule(), model.tensors, engines, {.repeats = repeats});
    for (int t = 1; t <= steps; ++t) {
      model.set_grads(static_cast<uint64_t>(t));
      optimizer.step(rate(static_cast<uint64_t>(t)));
    }
    EXPECT_EQ(optimizer.steps_done(), steps);
    return model.weights();
  }

  std::unique_ptr<Engine> engines_[3];
};

TEST_P(OnGpu, ReplayedWorkHasTheBitsOfWorkIssuedAnew) {
  const Values anew = after(8, false, 1);
  EXPECT_EQ(difference(after(8, true, 1), anew), "");
  EXPECT_EQ(difference(after(8, true, 3), anew), "");
  EXPECT_EQ(difference(after(8, false, 3), anew), "");
}

TEST_P(OnGpu, ABatchHasTheBitsOfItsTensors) {
  Model model(*engines_[0]);
  Values alone;
  for (size_t i = 0; i < model.dims.size(); ++i) {
    Model one(*engines_[0]);
    Optimizer optimizer(rule(), {one.tensors[i]}, {engines_[0].get()}, {});
    for (uint64_t t = 1; t <= 4; ++t) {
      one.set_grads(t);
      optimizer.step(rate(t));
    }
    alone.push_back(one.weights()[i]);
  }
  EXPECT_EQ(difference(after(4, true, 2), alone), "");
}

TEST_P(OnGpu, AGradientThatIsNotFiniteChangesNothing) {
  Model skipped(*engines_[0]), without(*engines_[0]);
  Optimizer a(rule(), skipped.tensors, {engines_[0].get(), engines_[1].get()},
              {});
  Optimizer b(rule(), without.tensors, {engines_[0].get(), engines_[1].get()},
              {});
  for (uint64_t t = 1; t <= 5; ++t) {
    without.set_grads(t);
    b.step(rate(t));
    if (t == 3) {
      skipped.set_grads(t, 4);
      a.step(rate(t));
      EXPECT_TRUE(a.last_step_skipped());
      EXPECT_EQ(a.last_nonfinite(), "layer.4");
    }
    skipped.set_grads(t);
    a.step(rate(t));
    EXPECT_FALSE(a.last_step_skipped());
  }
  EXPECT_EQ(a.steps_done(), 5);
  EXPECT_EQ(difference(skipped.weights(), without.weights()), "");
}

TEST_P(OnGpu, WritesTheWeightsInBf16) {
  Model model(*engines_[0]);
  Optimizer optimizer(rule(), model.tensors, {engines_[0].get()}, {});
  for (uint64_t t = 1; t <= 2; ++t) {
    model.set_grads(t);
    optimizer.step(rate(t));
  }
  const auto cpu = make_cpu_engine();
  const Values weights = model.weights();
  const auto rounded = model.rounded();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<uint16_t> expected(weights[i].size());
    cpu->round_weights(expected.data(), weights[i].data(),
                       static_cast<int64_t>(weights[i].size()));
    EXPECT_EQ(rounded[i], expected);
  }
}

// Up to rounding, a GPU does what a CPU does.
TEST_P(OnGpu, GoesWhereTheCpuGoes) {
  if (std::string(GetParam().name).starts_with("muon_fp16") ||
      std::string(GetParam().name) == "muon_l2" ||
      std::string(GetParam().name) == "muon_schatten4")
    GTEST_SKIP() << "a CPU has no fp16";
  if (std::string(GetParam().rule) == "soap")
    GTEST_SKIP() << "the first factors have eigenvalues of zero, whose vectors "
                    "are anyone's";
  Model model(*engines_[0]);
  Optimizer gpu(rule(), model.tensors, {engines_[0].get()}, {});
  Values weights = model.weights(), grads = weights;
  std::vector<Optimizer::Tensor> tensors;
  for (size_t i = 0; i < weights.size(); ++i)
    tensors.push_back({"", model.dims[i], run_of(weights[i].data()),
                       run_of(std::as_const(grads[i]).data())});
  Lanes lanes(1, [] { return make_cpu_engine(); });
  Optimizer cpu(
      make_rule(GetParam().rule, GetParam().options, DType::kFp32, "cpu"),
      tensors, lanes);
  for (uint64_t t = 1; t <= 4; ++t) {
    model.set_grads(t);
    for (size_t i = 0; i < grads.size(); ++i)
      std::ranges::copy(model.device.get<float>(model.tensors[i].grad.data,
                                                std::ssize(grads[i])),
                        grads[i].begin());
    gpu.step(0.01);
    cpu.step(0.01);
    EXPECT_FALSE(cpu.last_step_skipped());
  }
  const Values got = model.weights();
  for (size_t i = 0; i < got.size(); ++i) {
    float worst = 0;
    for (size_t k = 0; k < got[i].size(); ++k)
      worst = std::max(worst, std::abs(got[i][k] - weights[i][k]));
    EXPECT_LE(worst, 4e-3F) << "tensor " << i;
  }
}

// Fused, Muon's last product writes the weights itself; staged, it writes an
// update.
TEST(MuonOnGpu, FusedStepsHaveTheBitsOfTheStages) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  for (const char* precision : {"fp16", "bf16"})
    for (const Dims& dims : {Dims{300, 700}, Dims{700, 300}, Dims{257, 259}}) {
      const auto rule =
          make_rule("muon", {{"precision", precision}}, DType::kFp32, "cuda");
      EngineMemory device(*engine);
      const auto count = static_cast<size_t>(num_elements(dims));
      std::vector<float> start(count), grad(count);
      Stream s(5);
      for (float& x : start) x = static_cast<float>(s.normal());
      for (float& x : grad) x = static_cast<float>(s.normal());
      const canzona::Run g = device.put(grad);
      const canzona::Run weights[] = {device.put(start), device.put(start)};
      const canzona::Run momenta[] = {device.put(start), device.put(start)};
      const canzona::Run field = device.put(start), update = device.put(start);
      const auto shard = [&](size_t i) {
        return Shard{.whole = dims,
                     .count = num_elements(dims),
                     .grad = g,
                     .weights = weights[i],
                     .states = {&momenta[i], 1}};
      };
      const Step step{1, 0.1};
      const Shard fused = shard(0), apart = shard(1);
      rule->step_whole(*engine, step, {.dims = dims, .shards = {&fused, 1}});
      rule->prepare(*engine, step, apart, {&field, 1});
      const ConstRun gathered = field;
      rule->transform(
          *engine, step,
          {.dims = dims, .count = 1, .fields = {&gathered, 1}, .out = update});
      rule->apply(*engine, step, apart, update);
      const auto get = [&](canzona::Run run) {
        return Values{device.get<float>(run.data, num_elements(dims))};
      };
      EXPECT_EQ(difference(get(weights[0]), get(weights[1])), "") << precision;
      EXPECT_EQ(difference(get(momenta[0]), get(momenta[1])), "") << precision;
      EXPECT_NE(get(weights[0])[0], start);
    }
}

std::vector<float> normal_numbers(int64_t count, uint64_t seed) {
  Stream s(seed);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = static_cast<float>(s.normal());
  return out;
}

// The columns of one head of a row-major matrix.
std::vector<float> columns_of(const std::vector<float>& all, int64_t heads,
                              int64_t width, int64_t head) {
  std::vector<float> own;
  const auto rows = std::ssize(all) / (heads * width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j)
      own.push_back(all[static_cast<size_t>((i * heads + head) * width + j)]);
  return own;
}

// Two matrices in a batch, beside their heads as matrices of their own.
TEST(OnAGpu, HeadsOfColumnsHaveTheBitsOfMatricesOfTheirOwn) {
  CANZONA_NEEDS_GPU();
  constexpr int64_t kRows = 96, kWidth = 40, kHeads = 4;
  const Dims whole_dims{kRows, kHeads * kWidth}, head_dims{kRows, kWidth};
  for (const std::string preset : {"canzona", "nanochat", "normuon",
                                   "nvidia-adamuon", "nvidia-namo", "muonh"}) {
    SCOPED_TRACE(preset);
    const auto engine = make_cuda_engine();
    EngineMemory device(*engine);
    std::vector<Optimizer::Tensor> whole, apart;
    const auto add = [&](std::vector<Optimizer::Tensor>& to, const Dims& dims,
                         const std::vector<float>& weights) {
      to.push_back({cat("w", to.size()), dims, device.put(weights),
                    device.put(std::vector<float>(weights.size()))});
    };
    const auto all = num_elements(whole_dims);
    for (uint64_t t = 0; t < 2; ++t) {
      const std::vector<float> start = normal_numbers(all, t);
      add(whole, whole_dims, start);
      for (int64_t h = 0; h < kHeads; ++h)
        add(apart, head_dims, columns_of(start, kHeads, kWidth, h));
    }
    const auto optimizer = [&](const std::vector<Optimizer::Tensor>& tensors,
                               int64_t heads) {
      return Optimizer(
          make_rule("muon", {{"preset", preset}, {"column_heads", cat(heads)}},
                    DType::kFp32, "cuda"),
          tensors, {engine.get()}, {});
    };
    Optimizer a = optimizer(whole, kHeads), b = optimizer(apart, 1);
    const auto set = [&](const Optimizer::Tensor& tensor,
                         const std::vector<float>& values) {
      device.set(
          canzona::Run{const_cast<std::byte*>(tensor.grad.data), DType::kFp32},
          values);
    };
    for (uint64_t step = 1; step <= 3; ++step) {
      for (size_t t = 0; t < 2; ++t) {
        const std::vector<float> grad = normal_numbers(all, 10 * step + t);
        set(whole[t], grad);
        for (size_t h = 0; h < kHeads; ++h)
          set(apart[t * kHeads + h],
              columns_of(grad, kHeads, kWidth, static_cast<int64_t>(h)));
      }
      a.step(0.02);
      b.step(0.02);
    }
    for (size_t t = 0; t < 2; ++t) {
      const auto got = device.get<float>(whole[t].weights.data, all);
      for (size_t h = 0; h < kHeads; ++h)
        EXPECT_EQ(columns_of(got, kHeads, kWidth, static_cast<int64_t>(h)),
                  device.get<float>(apart[t * kHeads + h].weights.data,
                                    kRows * kWidth));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OnGpu, testing::ValuesIn(kCases),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace canzona::rules::optimizer_cuda_test
