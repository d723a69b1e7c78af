// Converts what the user wrote to the input of planner and simulation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/plan.h"
#include "canzona/report/shown_plan.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/workload.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// Thrown for a plan that is not valid, with all violations.
class ViolationsFound : public Error {
 public:
  ViolationsFound(const std::string& what, std::vector<std::string> violations)
      : Error(what), violations_(std::move(violations)) {}
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

// Thrown for a plan that is valid except for the memory cap: the caller must
// change the cap, so it is a mistake in the request. Each violation names what
// it concerns.
class CapExceeded : public UsageError {
 public:
  CapExceeded(const std::string& what, std::vector<std::string> violations,
              int64_t lacks_bytes)
      : UsageError(what),
        violations_(std::move(violations)),
        lacks_bytes_(lacks_bytes) {}
  const std::vector<std::string>& violations() const { return violations_; }
  // What the rank that needs most lacks.
  int64_t lacks_bytes() const { return lacks_bytes_; }

 private:
  std::vector<std::string> violations_;
  int64_t lacks_bytes_;
};

// Plans read from files, for verbs that show them.

struct PlanFile {
  Plan plan;
  std::vector<std::string> violations;  // empty: valid
};

// Throws UsageError for a file that is not a plan. Violations include a digest
// that does not match the contents, and a plan so broken that it cannot be read
// completely (then `plan` is empty).
PlanFile read_plan(const std::string& path);

// Reads what plans are evaluated by: ZeRO sizes, the work of an iteration, and
// the memory beside a plan.

// Parses "all", or sizes joined by ';' (names also by ','). Throws UsageError
// for sizes that do not divide.
std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option = "--zero");

// Reads the work of an iteration; nominal values where the options do not say.
// Micro-batches are as large as --tokens allows, and as many as --global-batch
// needs.
Workload read_workload(const PlanArguments& arguments, const Model& model,
                       const Mesh& mesh);

// Reads what counts against the memory cap of the options.
MemoryTerms read_memory_terms(const PlanArguments& arguments,
                              const Model& model, const Mesh& mesh,
                              const PlanOptions& options);

// Converts what the user wrote to the planner's input.
//
//   PlanInput input = read_plan_input(arguments);
//   ReportPlan shown = plan_once(input, "balanced");

struct PlanInput {
  Model model;  // routed
  Mesh mesh;
  std::unique_ptr<RuleFacts> rule;
  PlanOptions options;
  std::optional<CostTable> cost_table;
  std::string note = {};  // what was decided for the user; may be empty
  // What the cap covers; if empty, only the plan's memory.
  std::optional<MemoryTerms> terms = {};
  // What is predicted for the plan beside its step; nothing if empty.
  std::optional<Workload> work = {};
  // What rules reach without a table.
  double flops_per_second = kNominalFlopsPerSecond;

  PlanRequest request() const {
    return {.model = model,
            .mesh = mesh,
            .rule = *rule,
            .options = options,
            .cost_table = cost_table ? &*cost_table : nullptr,
            .flops_per_second = flops_per_second};
  }
};

// Returns --mesh after checking that --model is given, too; reads no file.
Mesh requested_mesh(const PlanArguments& arguments);
// UsageError names the option, its value and what is allowed.
PlanInput read_plan_input(const PlanArguments& arguments);
// The same without a mesh, of which nothing is read. `where` names what has so
// many ranks, for errors.
PlanInput read_input_of_any_mesh(const PlanArguments& arguments, int64_t ranks,
                                 const std::string& where);

// Reads the table that `--cost` names.
CostTable read_cost_table(const std::string& path,
                          const char* option = "--cost");

// Reads the description that `--cluster` names.
Cluster read_cluster_file(const std::string& path);
// The costs of rules on its cards; none if it names no table. Files named in a
// description are relative to it; an error shows the name as it is given there.
std::optional<CostTable> read_cost_table_of(const Cluster& cluster,
                                            const std::string& file);
// Rules run on the cards on which costs were measured, or on GPUs, unless the
// user names another device.
void settle_device(const CostTable* table, PlanArguments& arguments);

// Returns `name` if it is a strategy; UsageError names `option` and the nearest
// one, and `also`, another word that the option takes.
std::string known_strategy(const std::string& name, const char* option,
                           const char* also = nullptr);
// The same for names joined by commas; "" and "all" mean all of them.
std::vector<std::string> known_strategies(const std::string& text,
                                          const char* option);

// Reads the values of --rule-option, NAME=VALUE each; none may be given twice.
RuleOptions parse_rule_options(const std::vector<std::string>& given);

// "try --zero all, …": what lets a plan need less memory. `zero` is the value
// of --zero that searches.
std::string memory_cures(const MemoryTerms& terms, const char* zero);

// Throws CapExceeded if a rank needs more memory than the terms allow.
void require_cap(const MemoryTerms& terms, const std::vector<RankCost>& ranks,
                 const std::string& strategy);

// Plans, validates and measures. The time is from shapes to a validated plan
// with its digest. Throws ViolationsFound if the plan is not valid, CapExceeded
// if it needs more memory than allowed. `may_take` is the input's model, if it
// is not needed afterwards.
ReportPlan plan_once(const PlanInput& input, const std::string& strategy,
                     Model* may_take = nullptr);

}  // namespace canzona::cli
