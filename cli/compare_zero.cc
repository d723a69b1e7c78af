#include "cli/compare_zero.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "cli/plan_input.h"
#include "cli/zero_search.h"

namespace canzona::cli {
namespace {

std::string strategy_of(const PlanArguments& arguments) {
  if (arguments.strategies.empty()) return "balanced";
  const std::vector<std::string> names =
      known_strategies(arguments.strategies, "--strategies");
  if (names.size() == 1) return names.front();
  throw UsageError(cat("--strategies ", quoted(arguments.strategies),
                       " with --zero: expected one strategy"));
}

}  // namespace

Outcome compare_zero(const PlanArguments& arguments, const Output& out) {
  PlanInput input = read_plan_input(arguments);
  input.options.strategy = strategy_of(arguments);
  const std::vector<ZeroSizes> sizes =
      read_sizes(arguments.zero, input.mesh.homes());
  std::vector<ZeroSizes> experts;
  if (!arguments.zero_experts.empty())
    experts = read_sizes(arguments.zero_experts, input.mesh.expert_homes(),
                         "--zero-experts");
  const Workload work = read_workload(arguments, input.model);
  const ZeroComparison all = weigh_sizes(input.request(), work, sizes, experts);
  if (!arguments.html.empty())
    out.save(arguments.html, zero_comparison_html(all), "report");
  out.result(arguments.json ? zero_comparison_json(all)
                            : zero_comparison_text(all, out.ink()));
  return Outcome::kDone;
}

}  // namespace canzona::cli
