// How long does a whole step of a rule take on one device that owns all
// matrices of a model, stage by stage, and how far from its floor is that?
//
//   build/bench/rule --model qwen3-0.6b --layers 1 --rule soap
//   build-cuda/bench/rule --model qwen3-1.7b --device cuda --json
//
//   --rule-option NAME=VALUE   an option of the rule; repeatable
//   --rounds N                 steps that are timed (10)
//   --engines N                engines that shapes are distributed over
//   --no-graph                 issues every call instead of replaying a graph
//   --bf16-params              also writes the weights in bf16
//
// The floor is the time of the flops at the best rate measured for such
// products, plus the time of the bytes at the rate of a copy. Weights and
// states are fp32; progress goes to standard error.
#include <cstdio>

#include "bench/arguments.h"
#include "bench/rule_step.h"
#include "bench/table.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/json_writer.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/rules/options.h"
#include "canzona/shapes/read_model.h"

namespace canzona::bench {
namespace {

std::vector<Dims> tensors_of(const std::string& name, int layers) {
  const Model model = read_model(name, {});
  std::vector<Dims> dims;
  for (const Tensor& tensor : model.tensors)
    if (tensor.matrix_rule && tensor.layer < layers)
      dims.push_back(tensor.shape);
  if (dims.empty())
    throw UsageError(cat("--model ", quoted(name),
                         ": the model has no matrices for the rule"));
  return dims;
}

void put_stages(const char* key,
                const std::vector<Engine::StageTime>& stages,
                JsonWriter& out) {
  out.member(key).begin_object();
  for (const Engine::StageTime& stage : stages)
    out.field(stage.stage, stage.seconds);
  out.end_object();
}

void print_json(const std::string& model, const RuleStepRequest& request,
                const RuleStep& step) {
  JsonWriter out(2);
  out.begin_object().field("model", model).field("rule", request.rule);
  out.field("device", request.device).field("hardware", step.device);
  out.field("precision", step.precision).field("rounds", request.rounds);
  out.field("seconds", step.seconds);
  out.field("least_seconds", step.least_seconds);
  out.field("median_seconds", step.median_seconds);
  out.field("refresh_seconds", step.refresh_seconds);
  out.field("host_seconds", step.host_seconds);
  out.field("floor_seconds", step.floor_seconds);
  out.field("flops", step.flops).field("bytes", step.bytes);
  out.field("peak_tflops", step.peak_tflops);
  out.field("copy_bytes_per_second", step.copy_bytes_per_second);
  out.field("memory_bytes", step.memory_bytes);
  out.member("algorithm_by_shape").begin_object();
  for (const auto& [shape, algorithm] : step.algorithms)
    out.field(shape, algorithm);
  out.end_object();
  put_stages("seconds_by_stage", step.stages, out);
  put_stages("refresh_seconds_by_stage", step.refresh_stages, out);
  std::printf("%s\n", out.end_object().take().c_str());
}

void print_text(const RuleStepRequest& request, const RuleStep& step) {
  std::printf("%s in %s on %zu tensors, %s\n", request.rule.c_str(),
              step.precision.c_str(), request.tensors.size(),
              step.device.c_str());
  for (const auto& [shape, algorithm] : step.algorithms)
    std::printf("  %-14s %s\n", shape.c_str(), algorithm.c_str());
  std::printf(
      "step %.3f ms (median of %d), %.2fx the floor of %.3f ms; host %.3f ms; "
      "refresh %.3f ms\n",
      step.seconds * 1e3, request.rounds, step.seconds / step.floor_seconds,
      step.floor_seconds * 1e3, step.host_seconds * 1e3,
      step.refresh_seconds * 1e3);
  for (const auto* stages : {&step.stages, &step.refresh_stages}) {
    if (stages->empty()) continue;
    Table table(stages == &step.stages ? "of a step" : "of a refresh",
                {"stage", "ms", "calls"});
    for (const Engine::StageTime& stage : *stages)
      table.add(stage.stage,
                {stage.seconds * 1e3, static_cast<double>(stage.calls)});
    table.print(false);
  }
}

void run(int argc, char** argv) {
  Arguments words(argc, argv);
  const bool json = words.has("--json");
  const std::string model = words.value("--model", "qwen3-0.6b");
  RuleStepRequest request;
  request.rule = words.value("--rule", kDefaultRule);
  request.device = words.value("--device", "cpu");
  request.options = words.rule_options();
  request.tensors = tensors_of(model, words.count("--layers", 1'000'000));
  request.rounds = words.count("--rounds", 10);
  const DeviceKind& device = device_kind(request.device);
  request.num_engines = words.count("--engines", device.num_engines);
  request.graph = !words.has("--no-graph");
  request.rounded = words.has("--bf16-params");
  words.require_no_more();
  if (!device.has_own_memory && fast_bf16(cpu_features()).empty() &&
      !rules_with("precision").empty() &&
      std::ranges::count(rules_with("precision"), request.rule) > 0)
    request.options.try_emplace("precision", "fp32");
  const RuleStep step =
      measure_rule_step(request, [](const std::string& what) {
        std::fprintf(stderr, "%s\n", what.c_str());
      });
  if (json)
    print_json(model, request, step);
  else
    print_text(request, step);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_or_tell([&] { canzona::bench::run(argc, argv); });
}
