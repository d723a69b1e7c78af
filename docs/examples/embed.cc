// A trainer of one's own on Canzona. Four ranks, every matrix in two halves,
// each half on two data-parallel ranks, learn the numbers of a sine.
#include <canzona/canzona.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

using namespace canzona;

constexpr const char* kNames[] = {"layers.0.up", "layers.0.norm",
                                  "layers.0.down"};

Plan make_my_plan() {
  const Model model = model_from_shapes(
      R"([{"name": "layers.0.up", "shape": [96, 32], "tp": "rows"},
          {"name": "layers.0.down", "shape": [32, 96], "tp": "columns"},
          {"name": "layers.0.norm", "shape": [32]}])",
      "my model");
  const auto muon = make_rule_facts("muon", {{"device", "cpu"}});
  PlanOptions options;
  options.parameters = DType::kFp32;
  return make_plan({model, parse_mesh("dp=2,tp=2"), *muon, options});
}

// Ranks that store the same shard must set the same values.
void set_first_weights(Runtime& runtime) {
  std::mt19937 random(runtime.coordinates().tp_rank);
  std::normal_distribution<float> normal(0, 0.1F);
  for (const std::string name : kNames) {
    const int32_t tensor = runtime.tensor(name);
    std::vector<float> shard(runtime.shard_elements(tensor), 1);
    if (name != "layers.0.norm")
      for (float& weight : shard) weight = normal(random);
    runtime.set_parameter(tensor, shard);
  }
}

// Stands for forward and backward: returns the loss on this rank's shards.
double write_gradients(Runtime& runtime) {
  double loss = 0;
  for (const char* name : kNames) {
    const int32_t tensor = runtime.tensor(name);
    const std::span<float> w = runtime.parameter(tensor);
    const std::span<float> gradient = runtime.gradient(tensor);
    for (size_t i = 0; i < w.size(); ++i) {
      gradient[i] = w[i] - std::sin(static_cast<float>(i * i));
      loss += gradient[i] * gradient[i];
    }
    runtime.grad_ready(tensor);  // its bucket leaves when it is full
  }
  return loss;
}

int main() {
  const Plan plan = make_my_plan();
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    set_first_weights(runtime);
    for (int step = 1; step <= 100; ++step) {
      const double loss = write_gradients(runtime);
      runtime.step({.learning_rate = 0.05,
                    .adamw_learning_rate = 0.02,
                    .gradient_factor = 1.0 / 2});  // dp=2, one micro-batch
      runtime.wait_all_params();  // or wait_params(module) before each forward
      if (world.rank() == 0 && (step == 1 || step % 25 == 0))
        std::printf("step %3d  loss %8.2f\n", step, loss);
    }
  });
}
