// How long does planning take, from parsed shapes to a validated plan with its
// digest? `balanced` beside `contiguous` (the published algorithm) in one run,
// single-threaded; the smallest of several rounds.
//
//   build/bench/planning [--json]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "bench/table.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/shapes/read_model.h"

namespace canzona::bench {
namespace {

double seconds_to_plan(const Model& model, const std::string& mesh,
                       const std::string& strategy, int rounds) {
  const auto rule = make_rule_facts("muon", {});
  PlanOptions options;
  options.strategy = strategy;
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = make_plan({model, parse_mesh(mesh), *rule, options});
    if (!validate(plan).empty()) throw std::runtime_error("unsound plan");
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

// 235B-A22B with ten times the layers: 360k matrices.
Model ten_times_235b() {
  Model model = model_from_config(
      R"({"model_type": "qwen3_moe", "hidden_size": 4096,
          "num_hidden_layers": 940, "num_attention_heads": 64,
          "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
          "intermediate_size": 12288, "moe_intermediate_size": 1536,
          "num_experts": 128, "num_experts_per_tok": 8,
          "tie_word_embeddings": false})",
      "235b × 10", {});
  route(model, {});
  return model;
}

Model preset(const std::string& name, bool fused) {
  Model model = read_model(name, {.fused = fused});
  route(model, {});
  return model;
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double add_case(Table& table, const std::string& label, const Model& model,
                const std::string& mesh, int rounds) {
  const double published = seconds_to_plan(model, mesh, "contiguous", rounds);
  const double ours = seconds_to_plan(model, mesh, "balanced", rounds);
  table.add(label,
            {published * 1e3, ours * 1e3, ours / published, peak_megabytes()});
  return ours;
}

void run(bool json) {
  Table table("shapes parsed → validated plan with digest, one thread",
              {"case", "contiguous ms", "balanced ms", "ratio", "peak MB"});
  add_case(table, "32B fused, dp=32,tp=8", preset("qwen3-32b", true),
           "dp=32,tp=8", 20);
  const double one =
      add_case(table, "235B-A22B, 36k matrices, dp=128,tp=8",
               preset("qwen3-235b-a22b", false), "dp=128,tp=8", 5);
  add_case(table, "235B-A22B, dp=16,tp=8,ep=8",
           preset("qwen3-235b-a22b", false), "dp=16,tp=8,ep=8", 5);
  const double ten = add_case(table, "235B × 10 layers, 365k matrices",
                              ten_times_235b(), "dp=128,tp=8", 3);
  table.print(json);
  Table growth("ten times the matrices", {"case", "times the time"});
  growth.add("365k over 36k matrices", {ten / one});
  growth.print(json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_program(argc, argv, canzona::bench::run);
}
