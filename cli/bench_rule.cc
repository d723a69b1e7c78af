// `canzona bench rule`: a whole step of a rule on all matrices of a model.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/measure/rule_step.h"
#include "canzona/shapes/read_model.h"
#include "cli/bench.h"
#include "cli/precision.h"

namespace canzona::cli {
namespace {

std::vector<Dims> tensors_of(const BenchArguments& a) {
  if (a.model.empty())
    throw UsageError("canzona bench rule: --model is missing");
  const Model model = read_model(a.model, {});
  if (a.layers < 0 || a.layers > model.num_layers)
    throw UsageError(cat("--layers ", a.layers, ": ", model.name, " has ",
                         model.num_layers));
  std::vector<Dims> dims;
  for (const Tensor& tensor : model.tensors)
    if (tensor.matrix_rule && (a.layers == 0 || tensor.layer < a.layers))
      dims.push_back(tensor.shape);
  if (dims.empty())
    throw UsageError(
        cat("--model ", quoted(a.model), ": it has no matrices for the rule"));
  return dims;
}

// --precision is an option of the rule; rules without it have one way alone.
void put_precision(const BenchArguments& a, RuleOptions& options) {
  if (a.precision.empty()) return;
  const auto rule = std::ranges::find(rule_table(), a.rule, &RuleEntry::name);
  if (rule == rule_table().end()) return;  // refused where the rule is made
  const auto fact =
      std::ranges::find(rule->options, "precision", &OptionFact::name);
  if (fact == rule->options.end())
    throw UsageError(cat("--precision ", quoted(a.precision), ": ", a.rule,
                         " has no such option and computes in fp32; leave it "
                         "out"));
  const std::vector<std::string> known = split_text(fact->allowed, '|');
  if (std::ranges::find(known, a.precision) == known.end())
    throw UsageError(cat("--precision ", quoted(a.precision), ": expected ",
                         join(known, ", "), did_you_mean(a.precision, known)));
  const auto given = options.find("precision");
  if (given != options.end() && given->second != a.precision)
    throw UsageError(
        cat("--precision ", quoted(a.precision),
            " contradicts --rule-option precision=", given->second));
  options["precision"] = a.precision;
}

RuleStepRequest rule_request_of(const BenchArguments& a,
                                PrecisionChoice& precision) {
  constexpr int kMostEngines = 16;
  if (a.engines < 0 || a.engines > kMostEngines)
    throw UsageError(
        cat("--engines ", a.engines, ": expected 1 to ", kMostEngines));
  RuleStepRequest request;
  request.rule = a.rule;
  request.options = parse_bench_options(a.options);
  put_precision(a, request.options);
  precision = settle_precision(a.rule, a.device, request.options);
  if (!a.precision.empty() && a.precision != "auto")
    precision.why = "--precision";
  request.device = a.device;
  request.tensors = tensors_of(a);
  request.rounds = a.rounds;
  request.num_engines = a.engines > 0 ? a.engines : a.device == "cuda" ? 2 : 1;
  request.graph = !a.no_graph;
  request.rounded = a.rounded;
  return request;
}

void add_stages(JsonWriter& out, std::string_view name,
                const std::vector<Engine::StageTime>& stages) {
  out.member(name).begin_object();
  for (const Engine::StageTime& stage : stages)
    out.field(stage.stage, stage.seconds);
  out.end_object();
}

std::string as_json(const BenchArguments& a, const RuleStepRequest& request,
                    const PrecisionChoice& precision, const RuleStep& step) {
  JsonWriter out(2);
  out.begin_object();
  out.field("model", a.model).field("rule", a.rule).field("device", a.device);
  write_precision(out, precision);
  out.field("hardware", step.device);
  out.field("tensors", static_cast<int64_t>(request.tensors.size()));
  out.field("rounds", request.rounds).field("graph", request.graph);
  out.field("seconds", step.seconds);
  out.field("least_seconds", step.least_seconds);
  out.field("refresh_seconds", step.refresh_seconds);
  out.field("host_seconds", step.host_seconds);
  add_stages(out, "seconds_by_stage", step.stages);
  add_stages(out, "refresh_seconds_by_stage", step.refresh_stages);
  out.member("algorithm_by_shape").begin_object();
  for (const auto& [shape, algorithm] : step.algorithms)
    out.field(shape, algorithm);
  out.end_object();
  out.field("flops", step.flops).field("bytes", step.bytes);
  out.field("peak_tflops", step.peak_tflops);
  out.field("copy_bytes_per_second", step.copy_bytes_per_second);
  out.field("floor_seconds", step.floor_seconds);
  out.field("memory_bytes", step.memory_bytes);
  out.end_object();
  return out.take() + "\n";
}

std::string stage_lines(const std::vector<Engine::StageTime>& stages) {
  double total = 0;
  for (const Engine::StageTime& stage : stages) total += stage.seconds;
  std::string out;
  for (const Engine::StageTime& stage : stages)
    out += fmt::format("  {:20} {:9.3f} ms  {:5.1f} %  {} calls\n", stage.stage,
                       stage.seconds * 1e3, 100 * stage.seconds / total,
                       stage.calls);
  return out;
}

// Only what took part: the kernel for bf16 is idle in an fp32 step.
std::string hardware_text(const BenchArguments& a, const RuleStep& step) {
  if (a.device == "cuda" || step.precision == "bf16") return step.device;
  const BlasInfo blas = blas_info();
  return cat(blas.library, " ", blas.core);
}

std::string as_text(const BenchArguments& a, const RuleStepRequest& request,
                    const PrecisionChoice& precision, const RuleStep& step) {
  std::string out = fmt::format("{} in {} on {} tensors of {}, {}\n", a.rule,
                                step.precision, request.tensors.size(),
                                printable(a.model), hardware_text(a, step));
  if (!precision.precision.empty())
    out += "precision: " + precision.text() + "\n";
  out += "\n";
  for (const auto& [shape, algorithm] : step.algorithms)
    out += fmt::format("  {:14} {}\n", shape, algorithm);
  out += fmt::format(
      "\nstep {:.3f} ms (median of {}), {:.2f}x the floor of {:.3f} ms\n"
      "host {:.3f} ms\n"
      "floor: {:.3g} TFLOP at {:.3g} TF/s, then {} at {:.3g} TB/s\n",
      step.seconds * 1e3, request.rounds, step.seconds / step.floor_seconds,
      step.floor_seconds * 1e3, step.host_seconds * 1e3, step.flops / 1e12,
      step.peak_tflops, human_bytes(static_cast<int64_t>(step.bytes)),
      step.copy_bytes_per_second / 1e12);
  if (step.refresh_seconds > 1.5 * step.seconds)
    out += fmt::format("the slowest kind of step takes {:.3f} ms\n",
                       step.refresh_seconds * 1e3);
  if (!step.stages.empty()) out += "\nby stage\n" + stage_lines(step.stages);
  if (!step.refresh_stages.empty())
    out += "\nby stage, of the slowest step of a period\n" +
           stage_lines(step.refresh_stages);
  return out;
}

}  // namespace

Outcome bench_rule(const BenchArguments& arguments, const Output& out) {
  PrecisionChoice precision;
  const RuleStepRequest request = rule_request_of(arguments, precision);
  const RuleStep step = measure_rule_step(
      request, [&](const std::string& what) { out.progress(what); });
  out.progress("");
  out.result(arguments.json ? as_json(arguments, request, precision, step)
                            : as_text(arguments, request, precision, step));
  return Outcome::kDone;
}

}  // namespace canzona::cli
