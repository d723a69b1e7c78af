// The options that `plan`, `compare`, `simulate` and `bench step` share, as the
// user wrote them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/option_table.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace canzona::cli {

// The batch at which predictions of `plan` and `compare` are compared, whatever
// the mesh, in tokens.
inline constexpr int64_t kUsualGlobalBatch = 4 << 20;

// The mesh that is searched for.
inline constexpr const char* kAutoMesh = "auto";

// Empty text means not given, and so does an empty number.
struct PlanArguments {
  std::string storage;  // plan only: given storage
  std::string layout;   // plan only: one of PyTorch's, with the next three
  std::string dtype;
  std::string wire;
  bool share_states = false;
  std::string model;
  bool fused = false;
  std::optional<int64_t> layers;
  std::string scale;
  std::vector<std::string> matrix_rule;  // patterns
  std::vector<std::string> adamw;        // patterns
  std::string mesh;     // "auto" with the next four, plan and compare only
  bool meshes = false;  // compare: the best mesh of each kind
  std::optional<int64_t> ranks;
  std::vector<std::string> fix;     // "tp=8"
  std::vector<std::string> forbid;  // "pp"
  std::string rule = kDefaultRule;
  std::vector<std::string> rule_options;  // key=value
  std::string newton_schulz;
  std::string phases;
  std::string device;  // bench step only: where the rule runs
  // Bench step only: resolves settings that depend on this machine.
  std::function<void(const std::string& rule, RuleOptions& options)> settle;

  // What the planner's options say (plan/option_table.h); compare and bench
  // step take several strategies, sizes and, bench step, overlaps.
  PlannerTexts planner;
  std::string gradients;    // dtype at rest
  std::string activations;  // dtype
  bool recompute = false;

  // Options that describe an iteration.
  std::optional<int64_t> tokens;
  std::optional<int64_t> length;
  std::optional<int64_t> micro_batches;
  std::optional<int64_t> global_batch;  // tokens of an iteration, on all ranks
  std::optional<double> tflops;

  // The ranks, see cli/stated_cluster.h.
  std::string gpu;
  std::optional<int64_t> nodes;

  std::string cost;
  std::string cluster;  // a file; of plans only where the mesh is searched for

  std::string output;  // plan only
  std::string html;
  bool json = false;

  const CLI::App* app = nullptr;  // the verb, when it was declared

  // The two lists of patterns in the order in which the user gave them: a later
  // one overrides an earlier one.
  std::vector<RouteOverride> overrides() const;
  // Returns the name of an option that was given and is not one of these; ""
  // if there is none.
  std::string option_beside(std::initializer_list<const char*> allowed) const;
};

// The verb that the options are for: `plan`, `compare`, `bench step` or
// `simulate`.
enum class Planning { kOne, kAll, kRun, kSimulate };
OptionRows plan_options(Planning planning, PlanArguments& arguments);

// The options by which `explain` counts memory as `plan` does.
OptionRows memory_options(PlanArguments& arguments);

// Adds a verb that has these options and no others.
using PlanRun = Outcome (*)(const PlanArguments&, const Output&);
Verb add_planning_verb(CLI::App& root, Planning planning, VerbDeclaration verb,
                       PlanRun run);

// The words of --collectives where a plan is simulated.
std::vector<std::string> simulated_collectives();

// "Rules:" and "Strategies:" with a line each, for the end of a help page.
std::string rules_help();
std::string strategies_help();

}  // namespace canzona::cli
