// From what the user wrote to what planner and simulation take.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/plan.h"
#include "canzona/report/report_plan.h"
#include "canzona/sim/memory_terms.h"
#include "canzona/sim/workload.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// Plans from files, for the verbs that look at them.

struct PlanFile {
  Plan plan;
  std::vector<std::string> violations;  // empty: sound
};

// UsageError for a file that is no plan. Violations are also a digest that does
// not fit the contents, and a plan so broken that it cannot be read to its end
// (then `plan` is empty).
PlanFile read_plan(const std::string& path);

// Reads what plans are weighed by: sizes of ZeRO, the work of an iteration and
// the memory beside a plan.

// "all", or sizes joined by ';' (names by ',' too). UsageError for sizes that
// do not divide.
std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option = "--zero");

// Reads the work of an iteration; nominal where the options do not say.
Workload read_workload(const PlanArguments& arguments, const Model& model);

// Reads what is counted against the cap of the options.
MemoryTerms read_memory_terms(const PlanArguments& arguments,
                              const Model& model, const Mesh& mesh,
                              const PlanOptions& options);

// From what the user wrote to what the planner takes.
//
//   PlanInput input = read_plan_input(arguments);
//   ReportPlan shown = plan_once(input, "balanced");

struct PlanInput {
  Model model;  // routed
  Mesh mesh;
  std::unique_ptr<RuleFacts> rule;
  PlanOptions options;
  std::optional<CostTable> cost_table;
  std::string note = {};  // what was decided for the user; empty: nothing
  // The terms of the cap; none: what the plan says alone.
  std::optional<MemoryTerms> terms = {};

  PlanRequest request() const {
    return {model, mesh, *rule, options, cost_table ? &*cost_table : nullptr};
  }
};

// UsageError names the option, its value and what is allowed.
PlanInput read_plan_input(const PlanArguments& arguments);

// The table that `--cost` names.
CostTable read_cost_table(const std::string& path,
                          const char* option = "--cost");

// `name` if it is a strategy; UsageError names `option` and the nearest.
std::string known_strategy(const std::string& name, const char* option);
// The same for names joined by commas; "" and "all" are all of them.
std::vector<std::string> known_strategies(const std::string& text,
                                          const char* option);

// Plans, validates and measures. The clock runs from shapes to a validated plan
// with its digest. ViolationsFound if the plan is not sound, CapExceeded if it
// needs more memory than it may. `may_take`: the input's model, if nobody needs
// it afterwards.
ReportPlan plan_once(const PlanInput& input, const std::string& strategy,
                     Model* may_take = nullptr);

}  // namespace canzona::cli
