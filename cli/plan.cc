// `canzona plan`: from a model's shapes to a validated plan.
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/report/html_report.h"
#include "canzona/report/plan_json_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/sim/zero_search.h"
#include "cli/errors.h"
#include "cli/plan_input.h"
#include "cli/verbs.h"
#include "cli/workload.h"

namespace canzona::cli {
namespace {

constexpr const char* kPlanExamples =
    R"(Examples:
  canzona plan --model qwen3-32b --fused --mesh dp=32,tp=8 --rule muon
  canzona plan --model ./config.json --mesh dp=16,tp=4,pp=2 --rule soap --phases 5 -o plan.json
  canzona plan --model model.safetensors.index.json --mesh dp=8 --adamw '*.k_proj.*' --json
  canzona plan --model qwen3-8b --mesh dp=16 --zero hier:8
  canzona plan --model qwen3-30b-a3b --mesh dp=8,ep=8 --zero hier:8 --zero-experts zero3
  canzona plan --model qwen3-8b --mesh dp=16 --zero auto --memory-cap 40GB -o plan.json
)";

// With `--zero auto`: that of the best plan.
constexpr const char* kAnyStrategy = "any";

// What the report sets the plan against.
constexpr const char* kBaseline = "start_offset";

std::string help_footer() {
  return kPlanExamples + std::string("\n") + strategies_help() + "\n" +
         rules_help();
}

// The plan, and before it the baseline where that can plan this input at all.
std::string report_of(const PlanInput& input, const ReportPlan& shown) {
  std::vector<ReportPlan> plans;
  if (shown.plan.options.strategy != kBaseline) {
    try {
      plans.push_back(plan_once(input, kBaseline));
    } catch (const UsageError&) {
      // Nothing to set it against: the report shows the plan alone.
    } catch (const ViolationsFound&) {
      // The same: its budgets may be out of the baseline's reach.
    }
  }
  plans.push_back(shown);
  return html_report(plans);
}

void choose_zero(const PlanArguments& arguments, PlanInput& input,
                 const Output& out) {
  SearchedSizes searched{.dense = arguments.zero == "auto",
                         .experts = arguments.zero_experts == "auto"};
  const bool any = arguments.strategy == kAnyStrategy;
  if (any) searched.strategies = known_strategies("all", "--strategy");
  if (any && !searched)
    throw UsageError("--strategy any: expected --zero auto beside it");
  ZeroOptions& zero = input.options.zero;
  if (!searched.dense && !arguments.zero.empty())
    zero.sizes = parse_zero(arguments.zero, input.mesh.homes());
  if (!searched.experts && !arguments.zero_experts.empty())
    zero.experts = parse_zero(arguments.zero_experts, input.mesh.expert_homes(),
                              "--zero-experts");
  if (!searched) return;
  const ZeroComparison all =
      search_sizes(input.request(), read_workload(arguments, input.model),
                   searched, nullptr, &*input.terms);
  take_best(all, input.options);
  out.note("zero: " + all.search.summary());
}

Outcome run(const PlanArguments& arguments, const Output& out) {
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  if (arguments.strategy != kAnyStrategy)
    input.options.strategy = known_strategy(arguments.strategy, "--strategy");
  input.terms =
      read_memory_terms(arguments, input.model, input.mesh, input.options);
  choose_zero(arguments, input, out);
  const ReportPlan shown = plan_once(input, input.options.strategy);
  // Files first: whoever reads the text may stop reading early.
  if (!arguments.output.empty())
    out.save(arguments.output, plan_to_json(shown.plan), "plan");
  if (!arguments.html.empty())
    out.save(arguments.html, report_of(input, shown), "report");
  out.result(arguments.json ? plan_view_json(shown)
                            : plan_text(shown, out.ink()));
  out.note(cat("planned and validated in ", human_seconds(shown.plan_seconds)));
  return Outcome::kDone;
}

}  // namespace

Verb add_plan(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "plan", "decide who computes which matrix, and show what it costs");
  auto arguments = std::make_shared<PlanArguments>();
  add_plan_arguments(*app, Planning::kOne, *arguments);
  app->footer(help_footer());
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli
