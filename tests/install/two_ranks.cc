// A user's program on the installed library: two ranks plan two matrices, take
// a step together, save it, and resume from it.
#include <canzona/canzona.h>

#include <cstdio>
#include <string>

using namespace canzona;

namespace {

Plan plan_of_two_ranks() {
  const Model model = model_from_shapes(
      R"([{"name": "layers.0.up", "shape": [48, 16], "tp": "rows"},
          {"name": "layers.0.down", "shape": [16, 48], "tp": "columns"}])",
      "two matrices");
  const auto muon = make_rule_facts("muon", {{"device", "cpu"}});
  PlanOptions options;
  options.parameters = DType::kFp32;
  return make_plan({model, parse_mesh("dp=1,tp=2"), *muon, options});
}

void take_step(Runtime& runtime) {
  for (const char* name : {"layers.0.down", "layers.0.up"}) {
    const int32_t tensor = runtime.tensor(name);
    const auto weights = runtime.parameter(tensor);
    const auto gradient = runtime.gradient(tensor);
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = weights[i] - static_cast<float>(i % 7);
    runtime.grad_ready(tensor);
  }
  runtime.step({.learning_rate = 0.1});
  runtime.wait_all_params();
}

// Returns the digest after two steps; the second may follow a resume.
std::string train(const Plan& plan, const std::string& folder, bool resumes) {
  std::string digest;
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {});
    if (resumes) {
      load_state(runtime, world, {.folder = folder});
    } else {
      take_step(runtime);
      RunSaver saver(runtime, world, {.folder = folder});
      saver.save(1, {});
      while (saver.finish()) {
      }
    }
    take_step(runtime);
    const std::string own = runtime.parameter_digest();
    if (world.rank() == 0) digest = own;
  });
  return digest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Plan plan = plan_of_two_ranks();
  if (!validate(plan).empty()) return 1;
  const std::string all = train(plan, argv[1], false);
  const std::string resumed = train(plan, argv[1], true);
  std::printf("digest %s, resumed %s\n", all.c_str(), resumed.c_str());
  return all == resumed ? 0 : 1;
}
