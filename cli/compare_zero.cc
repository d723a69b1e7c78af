#include "cli/compare_zero.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "cli/plan_input.h"
#include "cli/zero_search.h"

namespace canzona::cli {
namespace {

std::vector<std::string> strategies_of(const PlanArguments& arguments) {
  if (arguments.strategies.empty()) return {"balanced"};
  return known_strategies(arguments.strategies, "--strategies");
}

}  // namespace

Outcome compare_zero(const PlanArguments& arguments, const Output& out) {
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  const std::vector<std::string> strategies = strategies_of(arguments);
  input.options.strategy = strategies.front();
  const std::vector<ZeroSizes> sizes =
      read_sizes(arguments.zero, input.mesh.homes());
  std::vector<ZeroSizes> experts;
  if (!arguments.zero_experts.empty())
    experts = read_sizes(arguments.zero_experts, input.mesh.expert_homes(),
                         "--zero-experts");
  const Workload work = read_workload(arguments, input.model);
  const MemoryTerms terms =
      read_memory_terms(arguments, input.model, input.mesh, input.options);
  const ZeroComparison all = weigh_sizes(
      input.request(), work, {sizes, experts, strategies}, nullptr, &terms);
  if (!arguments.html.empty())
    out.save(arguments.html, zero_comparison_html(all), "report");
  out.result(arguments.json ? zero_comparison_json(all)
                            : zero_comparison_text(all, out.ink()));
  return Outcome::kDone;
}

}  // namespace canzona::cli
