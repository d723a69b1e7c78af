// `canzona bench rule`: a whole step of a rule on all matrices of a model.

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/machine_report.h"
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

// --precision is an option of the rule; rules without it have only one.
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

}  // namespace

Outcome bench_rule(const BenchArguments& arguments, const Output& out) {
  RuleStepReport report{.model = arguments.model};
  report.request = rule_request_of(arguments, report.precision);
  report.step = measure_rule_step(
      report.request, [&](const std::string& what) { out.progress(what); });
  out.progress("");
  out.result(arguments.json ? rule_step_json(report) : rule_step_text(report));
  return Outcome::kDone;
}

}  // namespace canzona::cli
