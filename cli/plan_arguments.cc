#include "cli/plan_arguments.h"

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/rules/facts.h"
#include "cli/options.h"

namespace canzona::cli {
namespace {

constexpr size_t kNameColumn = 16;

class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}

  CLI::Option* text(const char* flag, std::string& value, const char* label,
                    const char* description) {
    return app_.add_option(flag, value, description)
        ->option_text(label)
        ->group(name_);
  }
  // The option may be repeated, with one value each.
  CLI::Option* list(const char* flag, std::vector<std::string>& values,
                    const char* label, const char* description) {
    return app_.add_option(flag, values, description)
        ->allow_extra_args(false)
        ->option_text(label)
        ->group(name_);
  }
  void flag(const char* flag, bool& value, const char* description) {
    app_.add_flag(flag, value, description)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* name_;
};

void add_input(CLI::App& app, Planning planning, PlanArguments& a) {
  Group group(app, "What is planned");
  group.text("--model", a.model, "MODEL",
             "preset or HF config.json (`canzona models` lists both kinds), "
             "safetensors file or index, or JSON list of shapes");
  group.flag("--fused", a.fused, "qkv and gate+up are one tensor each");
  group.text("--layers", a.layers, "N", "the first N layers of it [all]");
  group.text("--scale", a.scale, "1/N",
             "every width divided by N, heads and experts as many [1]");
  group.text("--split", a.split, "HOW",
             "tensors into matrices: none, qkv, head, gate-up, expert, or "
             "several joined by commas [none]");
  a.matrix_rule_option =
      group.list("--matrix-rule", a.matrix_rule, "PATTERN",
                 "tensors with such names to the matrix rule; repeatable");
  a.adamw_option = group.list("--adamw", a.adamw, "PATTERN",
                              "tensors with such names to AdamW; repeatable, "
                              "the later pattern wins");
  group.text("--mesh", a.mesh, "AXES",
             "sizes of the axes dp, cp, tp, pp, ep, such as dp=32,tp=8");
  if (planning == Planning::kOne)
    group.text("--placed", a.placed, "FILE",
               "instead of all these: JSON of tensors, rules and what every "
               "rank stores already (docs/plan.md)");
}

void add_rule(CLI::App& app, PlanArguments& a) {
  Group group(app, "The rule");
  group.text("--rule", a.rule, "RULE", "the matrix rule [muon]");
  group.list("--rule-option", a.rule_options, "NAME=VALUE",
             "an option of the rule (listed below); repeatable");
  group.text("--newton-schulz", a.newton_schulz, "FORM",
             "muon: standard, symmetric, gram or auto [auto]");
  group.text("--phases", a.phases, "S",
             "shampoo, soap: spread refreshes over S steps [1]");
}

void add_budgets(CLI::App& app, Planning planning, PlanArguments& a) {
  Group group(app, "How it is planned");
  if (planning == Planning::kSimulate)
    group.text("--strategy", a.strategy, "NAME",
               "how owners are chosen (listed below) [balanced]");
  else if (planning == Planning::kOne)
    group.text("--strategy", a.strategy, "NAME",
               "how owners are chosen (listed below); any: with --zero auto "
               "the best of all [balanced]");
  else if (planning == Planning::kAll)
    group.text("--strategies", a.strategies, "NAMES",
               "which to compare (listed below), joined by commas [all]");
  else
    group.text("--strategy", a.strategies, "NAMES",
               "which to run (listed below), joined by commas [all]");
  group.text("--weight", a.weight, "WHAT",
             "what is balanced: numel, flops or cost [the strategy's]");
  group.text("--alpha", a.alpha, "A",
             "how freely bytes may lie, 0 (even) to 1 (free) [the strategy's]");
  group.text("--bucket-elements", a.bucket_elements, "N",
             "a bucket closes at N elements of tp shards [400000000]");
  group.text("--micro-groups", a.micro_groups, "MODE",
             "none, sorted, capacity or balanced [the strategy's]");
  group.text("--exchange", a.exchange, "HOW",
             "of matrices between tp ranks: by rounds, of the first and the "
             "last round by strips, or auto, by strips where the predicted "
             "step is 1 % shorter [rounds]");
  group.text("--teams", a.teams, "SIZE",
             "let 2, 4 or 8 ranks of a home and node share a matrix by its "
             "strips where that makes the step 3 % shorter: off, auto, or "
             "the largest size [off]");
  group.text("--capacity", a.capacity, "BYTES",
             "fp32 bytes of shards per owner and micro-group, 0: no grouping "
             "[1600MiB]");
  group.text("--memory-cap", a.memory_cap, "BYTES",
             planning == Planning::kRun
                 ? "no rank may need more memory than this, 0: no cap [0]"
                 : "no rank may need more memory than this, activations "
                   "included, 0: no cap [0]");
  group.text("--parameters", a.parameters, "DTYPE",
             "dtype of the model's parameters: bf16 or fp32 [bf16]");
}

// Adds options for memory that is counted beside the plan.
void add_memory(CLI::App& app, PlanArguments& a) {
  Group group(app, "What a rank holds");
  group.text("--tokens", a.tokens, "N",
             "tokens of a micro-batch on a data-parallel rank, for activations "
             "and predicted times; 0: neither [4096]");
  group.text("--micro-batches", a.micro_batches, "N",
             "micro-batches of an iteration on a data-parallel rank; up to pp "
             "of them are in flight [1]");
  group.flag("--recompute", a.recompute,
             "layers keep their input alone and are computed again in "
             "backward");
  group.text("--activations", a.activations, "DTYPE",
             "dtype of activations: bf16 or fp32; none: not counted [bf16]");
  group.text("--gradients", a.gradients, "DTYPE",
             "dtype of gradients at rest: bf16 or fp32; sums are fp32 [fp32]");
}

// A cluster's file describes everything else.
void add_cluster_file(CLI::App& app, PlanArguments& a) {
  Group group(app, "The cluster");
  group.text("--cluster", a.cluster, "FILE",
             "JSON of cards, levels of links and how much ranks differ "
             "(docs/clusters.md)");
  group.text("--collectives", a.collectives, "HOW",
             "how sums and gathers reach other nodes: direct, each with each; "
             "node, once per node; ring; auto, node where no bit changes "
             "[the file's, or direct]");
  group.flag("--published", a.published,
             "instead of all these: times that papers have published, with "
             "what is predicted beside each");
}

void add_cluster(CLI::App& app, Planning planning, PlanArguments& a) {
  if (planning == Planning::kSimulate) return add_cluster_file(app, a);
  Group group(app, "The cluster");
  group.text("--cost", a.cost, "FILE",
             "table of measured costs [none: a nominal rate]");
  group.text("--link", a.link, "SPEEDS",
             planning == Planning::kRun
                 ? "model links between threads, such as "
                   "intra=2GB/s,inter=0.2GB/s,latency=20us [none: memory]"
                 : "such as intra=400GB/s,inter=50GB/s,latency=10us [these, "
                   "nominal]");
  group.text("--ranks-per-node", a.ranks_per_node, "N",
             "consecutive ranks that share a node [8]");
  group.text("--collectives", a.collectives, "HOW",
             planning == Planning::kRun
                 ? "how sums and gathers reach other nodes: direct, each of "
                   "their ranks; node, once per node; auto, node if every "
                   "group has a power of two of ranks on each node [direct; "
                   "auto on GPUs]"
                 : "how sums and gathers reach other nodes: direct, each of "
                   "their ranks; node, once per node; auto, node if every "
                   "group has a power of two of ranks on each node [direct]");
}

void add_zero(CLI::App& app, Planning planning, PlanArguments& a) {
  Group group(app, "Hierarchical ZeRO");
  group.text("--zero", a.zero, "SIZES",
             planning == Planning::kAll
                 ? "compare sizes instead of strategies: all, or several "
                   "(see docs/zero.md) joined by ';'"
             : planning == Planning::kSimulate
                 ? "cut states, gradients and parameters: none, zero1, zero2, "
                   "zero3, replica:Z, hier:Z, or z1=..,z2=..,z3=.. [zero1]"
                 : "cut states, gradients and parameters: none, zero1, zero2, "
                   "zero3, replica:Z, hier:Z, auto, or z1=..,z2=..,z3=.. "
                   "[zero1]");
  group.text("--zero-experts", a.zero_experts, "SIZES",
             planning == Planning::kAll
                 ? "the same of experts, over their own data-parallel ranks "
                   "[on the ranks of dense tensors]"
                 : "the same of experts, over their own data-parallel ranks, "
                   "or auto [on the ranks of dense tensors]");
  group.text("--message", a.message, "UNIT",
             "what travels together: module or parameter [module]");
  group.text("--prefetch", a.prefetch, "K",
             "modules gathered ahead, or auto: what the memory cap leaves "
             "[auto]");
  group.text("--replica-sum", a.replica_sum, "HOW",
             "gradients over groups: scatter or allreduce [scatter]");
  group.text("--overlap", a.overlap, "MODE",
             "for predicted times: none, main or background [background]");
  group.text("--length", a.length, "N",
             "tokens of a sequence [4096, or --tokens if fewer]");
  if (planning == Planning::kSimulate) return;
  group.text("--tflops", a.tflops, "X",
             "that a rank reaches in forward and backward [400, nominal]");
}

void add_output(CLI::App& app, Planning planning, PlanArguments& a) {
  Group group(app, "Output");
  if (planning == Planning::kOne)
    group.text("-o,--output", a.output, "FILE", "write the plan as JSON");
  if (planning != Planning::kRun)
    group.text("--html", a.html, "FILE",
               "write a report that opens in a browser");
  group.flag("--json", a.json, kJsonHelp);
}

// Adds the shell completions of values.
void add_offers(CLI::App& app, Planning planning) {
  std::vector<std::string> names;
  for (const StrategyInfo& strategy : strategies())
    names.push_back(strategy.name);
  offer_words(app.get_option(planning == Planning::kAll ? "--strategies"
                                                        : "--strategy"),
              names);
  const std::vector<std::pair<const char*, std::vector<std::string>>> words = {
      {"--split", {"none", "qkv", "head", "gate-up", "expert"}},
      {"--newton-schulz", {"standard", "symmetric", "gram", "auto"}},
      {"--weight", {"numel", "flops", "cost"}},
      {"--micro-groups", micro_group_modes()},
      {"--exchange", {"auto", "rounds", "strips"}},
      {"--teams", {"auto", "off", "2", "4", "8"}},
      {"--parameters", {"bf16", "fp32"}},
      {"--zero", {"none", "zero1", "zero2", "zero3", "auto", "all"}},
      {"--message", {"module", "parameter"}},
      {"--replica-sum", {"scatter", "allreduce"}},
      {"--collectives",
       planning == Planning::kSimulate
           ? std::vector<std::string>{"direct", "node", "ring", "auto"}
           : std::vector<std::string>{"direct", "node", "auto"}},
      {"--overlap", {"none", "main", "background"}}};
  for (const auto& [name, of_option] : words)
    if (CLI::Option* option = app.get_option_no_throw(name))
      offer_words(option, of_option);
}

std::string help_line(const std::string& name, const std::string& text) {
  return labelled(Ink(), name, text, kNameColumn);
}

}  // namespace

void add_plan_arguments(CLI::App& app, Planning planning,
                        PlanArguments& arguments) {
  arguments.app = &app;
  add_input(app, planning, arguments);
  add_rule(app, arguments);
  add_budgets(app, planning, arguments);
  if (planning != Planning::kRun) {
    add_memory(app, arguments);
    add_zero(app, planning, arguments);
  }
  add_cluster(app, planning, arguments);
  add_output(app, planning, arguments);
  add_offers(app, planning);
}

std::vector<RouteOverride> PlanArguments::overrides() const {
  std::vector<RouteOverride> out;
  size_t next_matrix_rule = 0, next_adamw = 0;
  for (const CLI::Option* option : app->parse_order()) {
    if (option == matrix_rule_option)
      out.push_back({matrix_rule.at(next_matrix_rule++), true});
    if (option == adamw_option) out.push_back({adamw.at(next_adamw++), false});
  }
  return out;
}

std::string rules_help() {
  std::string out = "Rules:\n";
  for (const RuleEntry& entry : rule_table())
    out += help_line(entry.name, entry.summary);
  return out + help_line("", "canzona rules RULE tells the options of one");
}

std::string strategies_help() {
  std::string out = "Strategies:\n";
  for (const StrategyInfo& info : strategies())
    out += help_line(info.name, info.summary);
  return out;
}

}  // namespace canzona::cli
