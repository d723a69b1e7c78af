// The verbs that show models, rules, plans and runs.
#include <cstdint>
#include <memory>

#include "canzona/base/text.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/report/explain.h"
#include "canzona/report/models_view.h"
#include "canzona/report/storage_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/report/shown_plan.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/read_model.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/plan_storage.h"
#include "cli/verbs.h"

namespace canzona::cli {

// `canzona models`: the presets, or the contents of one model.
namespace {

constexpr const char* kModelsExamples =
    R"(Examples:
  canzona models
  canzona models qwen3-30b-a3b
  canzona models qwen3-8b --fused --split qkv
  canzona models ./model.safetensors.index.json --json
)";

struct ModelsFlags {
  std::string model;
  std::string split;
  bool fused = false;
  bool json = false;
};

Model read_routed(const std::string& source, bool fused) {
  Model model = read_model(source, {.fused = fused});
  route(model, {});
  return model;
}

std::vector<ModelLine> all_presets(bool fused) {
  std::vector<ModelLine> lines;
  for (const PresetInfo& preset : presets())
    lines.push_back(
        summarize(read_routed(preset.name, fused), preset.description));
  return lines;
}

Document view(const ModelsFlags& a) {
  const Splits splits = a.split.empty() ? Splits{} : parse_splits(a.split);
  if (a.model.empty()) {
    return presets_view(all_presets(a.fused), config_families());
  }
  return model_view(read_routed(a.model, a.fused), splits);
}

OptionRows options_of(ModelsFlags& a) {
  return {argument("MODEL", a.model,
                   "preset or file; without it, all presets are listed"),
          flag("--fused", a.fused,
               "fuse q, k, v into one tensor, and gate and up into another"),
          option("--split", a.split, "HOW", planner_option("split").help)
              .one_of(planner_option("split").words),
          json_flag(a.json)};
}

}  // namespace

Verb add_models(CLI::App& root) {
  auto arguments = std::make_shared<ModelsFlags>();
  return add_verb(
      root, {.name = "models",
             .description = "list the model presets, or describe one model",
             .options = options_of(*arguments),
             .footer = kModelsExamples,
             .run = [arguments](const Output& out) {
               out.result(view(*arguments), arguments->json);
               return Outcome::kDone;
             }});
}

// `canzona rules`: what the rules say about themselves.
namespace {

constexpr const char* kRulesExamples =
    R"(Examples:
  canzona rules
  canzona rules muon
  canzona rules muon --preset nanochat
  canzona rules soap --json)";

struct RulesFlags {
  std::string rule;
  std::string preset;
  bool json = false;
};

OptionRows options_of(RulesFlags& a) {
  return {argument("RULE", a.rule, "a rule; without it, all rules are listed"),
          option("--preset", a.preset, "NAME",
                 "show the rule's options with the values of a preset"),
          json_flag(a.json)};
}

}  // namespace

Verb add_rules(CLI::App& root) {
  auto arguments = std::make_shared<RulesFlags>();
  return add_verb(
      root, {.name = "rules",
             .description = "list the rules and their options",
             .options = options_of(*arguments),
             .footer = kRulesExamples,
             .run = [arguments](const Output& out) {
               out.result(rules_view(arguments->rule, arguments->preset),
                          arguments->json);
               if (!arguments->rule.empty())
                 out.note("options are set with --rule-option NAME=VALUE");
               return Outcome::kDone;
             }});
}

// `canzona explain`: why a matrix has this owner, and what moves.
namespace {

constexpr const char* kExplainExamples =
    R"(Examples:
  canzona explain plan.json
  canzona explain plan.json --rank 17
  canzona explain plan.json --matrix model.layers.0.mlp.down_proj.weight
  canzona explain plan.json --audit
  canzona explain plan.json --html plan.html

Plans of given storage (`canzona plan --storage`) are explained as well: --rank shows what a rank owns,
sends and does in a step.
)";

struct ExplainFlags {
  std::string path;
  std::string rank;
  std::string matrix;
  std::string html;
  PlanArguments memory;  // how memory is counted
  bool audit = false;
  bool json = false;

  int selectors() const {
    return (rank.empty() ? 0 : 1) + (matrix.empty() ? 0 : 1) + (audit ? 1 : 0);
  }
};

int32_t index_of(const std::string& text, size_t count, const char* option,
                 const char* thing) {
  const int64_t value = parse_integer(text, 0, INT32_MAX, option);
  check_number(value, static_cast<int64_t>(count), option, thing);
  return static_cast<int32_t>(value);
}

// Memory is counted as `canzona plan` counts it, with the same options; a plan
// stores none of them.
ReportPlan read_shown(const std::string& path, const PlanArguments& memory) {
  PlanFile file = read_plan(path);
  if (!file.violations.empty())
    throw ViolationsFound(cat("plan ", quoted(path), " is not sound"),
                          std::move(file.violations));
  ReportPlan shown;
  shown.plan = std::move(file.plan);
  PlanOptions no_cap = shown.plan.options;
  no_cap.memory_cap_bytes = 0;
  shown.terms =
      read_memory_terms(memory, shown.plan.model, shown.plan.mesh, no_cap);
  shown.ranks = predict_in_terms(shown.plan, *shown.terms);
  shown.balance = measure_balance(shown.plan);
  return shown;
}

Document explanation(const ExplainFlags& a, const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  if (!a.rank.empty()) {
    return explain_rank(shown,
                        index_of(a.rank, shown.ranks.size(), "--rank", "rank"));
  }
  if (!a.matrix.empty()) {
    return explain_matrices(shown, find_by_name(plan, a.matrix));
  }
  return a.audit ? audit_view(plan) : plan_view(shown);
}

// The same for a plan of given storage.
Document explanation(const ExplainFlags& a, const StoragePlan& plan) {
  if (!a.rank.empty())
    return explain_storage_rank(
        plan, index_of(a.rank, index(plan.world), "--rank", "rank"));
  if (!a.matrix.empty()) return explain_storage_matrix(plan, a.matrix);
  return a.audit ? storage_audit(plan) : storage_view(plan);
}

Outcome explain_storage(const ExplainFlags& arguments, StoragePlanFile file,
                        const Output& out) {
  if (!file.violations.empty())
    throw ViolationsFound(cat("plan ", quoted(arguments.path), " is not sound"),
                          std::move(file.violations));
  // A mistake in the request is found before anything is written.
  const Document answer = explanation(arguments, file.plan);
  if (!arguments.html.empty())
    out.save(arguments.html, storage_html(file.plan), "report");
  out.result(answer, arguments.json);
  if (arguments.selectors() == 0)
    out.note("for more: --rank R, --matrix NAME or --audit");
  return Outcome::kDone;
}

Outcome run(const ExplainFlags& arguments, const Output& out) {
  if (arguments.selectors() > 1)
    throw UsageError(
        "--rank, --matrix and --audit: expected at most one of them");
  if (auto storage = read_storage_plan(arguments.path))
    return explain_storage(arguments, std::move(*storage), out);
  const ReportPlan shown = read_shown(arguments.path, arguments.memory);
  const Document answer = explanation(arguments, shown);
  if (!arguments.html.empty())
    out.save(arguments.html, plan_html(shown), "report");
  out.result(answer, arguments.json);
  if (arguments.selectors() == 0)
    out.note("for more: --rank R, --matrix NAME or --audit");
  return Outcome::kDone;
}

OptionRows options_of(ExplainFlags& a) {
  return joined(
      {{argument("PLAN", a.path, "a file that `canzona plan -o` wrote")
            .required(),
        option(
            "--rank", a.rank, "R",
            "show what this rank owns, stores and sends, and its actions in an "
            "iteration, in order"),
        option("--matrix", a.matrix, "NAME",
               "show why this matrix (or each matrix of this tensor) has its "
               "owner"),
        option("--html", a.html, "FILE",
               "write a report that opens in a browser"),
        flag("--audit", a.audit,
             "show every tensor: rule, home, owner, bytes, cost"),
        json_flag(a.json)},
       memory_options(a.memory)});
}

}  // namespace

Verb add_explain(CLI::App& root) {
  return add_verb_of<ExplainFlags>(
      root, {.name = "explain",
             .description = "show why a matrix has its owner and what moves",
             .footer = kExplainExamples});
}

// `canzona validate`: checks a plan.
namespace {

constexpr const char* kValidateExamples =
    R"(Examples:
  canzona validate plan.json
  canzona validate plan.json --json

Checks the digest; that every element of every tensor has one place in each tp plane, and every
matrix one owner or team; that routes are exact both ways; and that budgets hold. For a plan of given
storage: that every element is stored, owners store pieces, rounds respect the capacity, and costs and
figures are right. Lists all violations. The exit status is 0 for a sound plan, 1 for one that is not,
even if only its "format" says that it is a plan, 2 for any other file.
)";

struct ValidateFlags {
  std::string path;
  bool json = false;
};

int32_t world_of(const Plan& plan) { return plan.mesh.world(); }
int32_t world_of(const StoragePlan& plan) { return plan.world; }

// For a plan file of either kind.
template <class File>
Outcome tell_validity(const ValidateFlags& arguments, const File& file,
                      const Output& out) {
  const std::vector<std::string>& violations = file.violations;
  const std::string path = printable(arguments.path);
  Document view;
  view.set("sound", violations.empty()).set("violations", violations);
  if (!file.plan.digest.empty()) view.set("digest", file.plan.digest);
  if (violations.empty())
    view.text(cat(path, ": ", toned(Tone::kGood, "sound"), " (",
                  counted(std::ssize(file.plan.matrices), "matrix"), " on ",
                  counted(world_of(file.plan), "rank"), ", digest ",
                  file.plan.digest, ")\n"));
  else
    view.text(cat(path, ": ", toned(Tone::kPoor, "not sound"), ", ",
                  counted(std::ssize(violations), "violation"), "\n"));
  for (const std::string& violation : violations)
    view.text(cat("  ", printable(violation, 1000), "\n"));
  out.result(view, arguments.json);
  return violations.empty() ? Outcome::kDone : Outcome::kFailed;
}

Outcome run(const ValidateFlags& arguments, const Output& out) {
  if (const auto storage = read_storage_plan(arguments.path))
    return tell_validity(arguments, *storage, out);
  return tell_validity(arguments, read_plan(arguments.path), out);
}

OptionRows options_of(ValidateFlags& a) {
  return {argument("PLAN", a.path, "a file that `canzona plan -o` wrote")
              .required(),
          json_flag(a.json)};
}

}  // namespace

Verb add_validate(CLI::App& root) {
  return add_verb_of<ValidateFlags>(
      root, {.name = "validate",
             .description = "check that a plan is sound",
             .footer = kValidateExamples});
}

// `canzona report`: the results of training runs, on the terminal and as a
// page.
namespace {

constexpr const char* kReportExamples =
    R"(A run is a folder that `canzona train --run DIR` wrote: metrics.jsonl has a line per step,
summary.json describes the run. A run that is still in progress is shown as far as it got.

Several runs are compared: the steps, tokens and seconds each took to reach the baseline's final
evaluation loss, which weights are equal bit for bit, and how the configurations differ.

Examples:
  canzona report runs/muon
  canzona report runs/muon --html report.html
  canzona report runs/adamw runs/muon runs/soap --html compare.html
  canzona report runs/muon runs/adamw --baseline adamw --json
)";

struct ReportFlags {
  std::vector<std::string> folders;
  std::string baseline;
  std::string html;
  bool json = false;
};

Outcome run(const ReportFlags& a, const Output& out) {
  const std::vector<TrainingRun> runs = read_runs(a.folders);
  const size_t baseline = baseline_of(runs, a.baseline);
  const ComparedRuns all = compare_runs(runs, baseline);
  if (!a.html.empty()) out.save(a.html, run_report(all), "report");
  out.result(runs_view(all), a.json);
  return Outcome::kDone;
}

OptionRows options_of(ReportFlags& a) {
  return {argument("RUN", a.folders, "folders of runs").required(),
          option("--baseline", a.baseline, "RUN",
                 "the run to compare the others with")
              .by_default("the first"),
          option("--html", a.html, "FILE",
                 "write a page with curves, times and configurations"),
          json_flag(a.json)};
}

}  // namespace

Verb add_report(CLI::App& root) {
  return add_verb_of<ReportFlags>(
      root,
      {.name = "report",
       .description = "show the results of training runs and compare them",
       .footer = kReportExamples});
}

}  // namespace canzona::cli
