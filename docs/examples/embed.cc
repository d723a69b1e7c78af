// A trainer of one's own on Canzona. Four ranks, every matrix in two halves,
// each half on two data-parallel ranks, learn the numbers of a sine.
#include <canzona/canzona.h>

#include <cmath>
#include <cstdio>

using namespace canzona;

int main() {
  const Model model = model_from_shapes(
      R"([{"name": "layers.0.up", "shape": [96, 32], "tp": "rows"},
          {"name": "layers.0.down", "shape": [32, 96], "tp": "columns"}])",
      "two matrices");
  const auto muon = make_rule_facts("muon", {{"device", "cpu"}});
  PlanOptions options;
  options.parameters = ParameterDtype::kFp32;
  const Plan plan = make_plan({model, parse_mesh("dp=2,tp=2"), *muon, options});
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});  // weights are zeros
    for (int step = 1; step <= 100; ++step) {
      double loss = 0;
      for (const int32_t tensor : {1, 0}) {  // backward
        const std::span<float> w = runtime.parameter(tensor);
        const std::span<float> gradient = runtime.gradient(tensor);
        for (size_t i = 0; i < w.size(); ++i) {
          gradient[i] = w[i] - std::sin(static_cast<float>(i * i));
          loss += gradient[i] * gradient[i];
        }
        runtime.grad_ready(tensor);  // its bucket leaves when it is full
      }
      runtime.step({.learning_rate = 0.05, .gradient_factor = 1.0 / 2});
      runtime.wait_all_params();  // or wait_params(module) before each forward
      if (world.rank() == 0 && (step == 1 || step % 25 == 0))
        std::printf("step %3d  loss %8.2f\n", step, loss);
    }
  });
}
