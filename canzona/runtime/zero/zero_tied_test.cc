// A head tied to the embedding: it is used beside the head's own module, and
// both gradients are added before they are sent.
#include <gtest/gtest.h>

#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_tied_test {
namespace {

constexpr int32_t kLayers = 2;
constexpr int32_t kHead = kLayers + 1;

Model tied_model() {
  Model model = toy_model(kLayers);
  model.tensors.back() = adamw_tensor("final_norm", 16);
  return model;
}

class TiedRun {
 public:
  TiedRun(const Plan& plan, Overlap overlap) {
    trial_.plan = plan;
    trial_.gradients = GradientKind::kRandom;
    trial_.options.overlap = overlap;
    trial_.poison = [](Runtime& runtime, int64_t, int32_t tensor,
                       std::span<float> gradient) {
      add_seen(runtime, tensor, gradient);
    };
  }

  std::string digest(bool zeroes = true) {
    std::string digest;
    run_ranks(trial_.plan.mesh.world(), [&](Communicator& world) {
      const auto engine = make_cpu_engine();
      Runtime runtime(trial_.plan, world, *engine, trial_.options);
      set_initial_parameters(runtime);
      for (int64_t step = 1; step <= 3; ++step) {
        run_step(runtime, *engine, step);
        if (zeroes) runtime.zero_gradients();
      }
      const std::string mine =
          runtime.parameter_digest() + runtime.state_digest();
      EXPECT_EQ(runtime.pool_use().slots_now, 0);
      if (world.rank() == 0) digest = mine;
    });
    return digest;
  }

 private:
  void run_step(Runtime& runtime, Engine& engine, int64_t step) {
    std::vector<int32_t> uses;
    for (int micro = 0; micro < kMicroBatches; ++micro)
      uses.insert(uses.end(), {0, 1, 2, 0, kHead, 0, kHead, 2, 1, 0});
    runtime.begin_iteration(uses, kMicroBatches);
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      for (const int32_t module : {0, 1, 2}) use(runtime, {module});
      use(runtime, {0, kHead});
      runtime.wait_params(0);
      runtime.wait_params(kHead);
      add(runtime, engine, 0, step, 10);
      finish(runtime, engine, kHead, step);
      runtime.release_params(0);
      for (const int32_t module : {2, 1, 0}) {
        runtime.wait_params(module);
        finish(runtime, engine, module, step);
      }
    }
    runtime.step({.learning_rate = 0.01});
  }

  static void use(Runtime& runtime, const std::vector<int32_t>& modules) {
    for (const int32_t module : modules) runtime.wait_params(module);
    for (const int32_t module : modules) runtime.release_params(module);
  }
  void add(Runtime& runtime, Engine& engine, int32_t tensor, int64_t step,
           int64_t part) {
    add_gradient(runtime, engine, trial_, step, step + part, tensor);
  }
  void finish(Runtime& runtime, Engine& engine, int32_t module, int64_t step) {
    const Model& model = trial_.plan.model;
    for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
      if (module_of(model, model.tensors[static_cast<size_t>(t)]) != module)
        continue;
      add(runtime, engine, t, step, 0);
      runtime.grad_ready(t);
    }
    runtime.release_params(module);
  }

  static constexpr int kMicroBatches = 2;
  Trial trial_;
};

TEST(ZeroTied, EmbeddingGivesOneResult) {
  std::map<int32_t, std::string> expected;  // by z2
  for (const ZeroSizes& sizes : all_zero_sizes(4))
    for (const int32_t prefetch : {0, 2})
      for (const Overlap overlap :
           {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
        const ZeroVariant v{
            .sizes = sizes, .overlap = overlap, .prefetch = prefetch};
        TiedRun run(zero_plan(tied_model(), 4, v), overlap);
        const std::string digest = run.digest();
        if (sizes.z2 > 1) {
          ASSERT_EQ(run.digest(/*zeroes=*/false), digest) << to_string(v);
        }
        const std::string& first =
            expected.try_emplace(sizes.z2, digest).first->second;
        ASSERT_EQ(digest, first) << to_string(v);
      }
}

}  // namespace
}  // namespace canzona::runtime::zero_tied_test
