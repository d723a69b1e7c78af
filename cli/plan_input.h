// From what the user wrote to what the planner takes.
//
//   PlanInput input = read_plan_input(arguments);
//   ReportPlan shown = plan_once(input, "balanced");
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/report/report_plan.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

struct PlanInput {
  Model model;  // routed
  Mesh mesh;
  std::unique_ptr<RuleFacts> rule;
  PlanOptions options;
  std::optional<CostTable> cost_table;
  std::string note = {};  // what was decided for the user; empty: nothing
  // What is counted against the cap; none: what the plan says alone.
  std::optional<MemoryTerms> terms = {};

  PlanRequest request() const {
    return {model, mesh, *rule, options, cost_table ? &*cost_table : nullptr};
  }
};

// UsageError names the option, its value and what is allowed.
PlanInput read_plan_input(const PlanArguments& arguments);

// `name` if it is a strategy; UsageError names `option` and the nearest.
std::string known_strategy(const std::string& name, const char* option);
// The same for names joined by commas; "" and "all" are all of them.
std::vector<std::string> known_strategies(const std::string& text,
                                          const char* option);

// Plans, validates and measures. The clock runs from shapes to a validated plan
// with its digest. ViolationsFound if the plan is not sound.
ReportPlan plan_once(const PlanInput& input, const std::string& strategy);

}  // namespace canzona::cli
