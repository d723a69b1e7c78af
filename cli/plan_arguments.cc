#include "cli/plan_arguments.h"

#include <algorithm>
#include <memory>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/known_gpus.h"

namespace canzona::cli {
namespace {

constexpr size_t kNameColumn = 16;
constexpr const char* kAxesHelp =
    "sizes of the axes dp, cp, tp, pp, ep, such as dp=32,tp=8";
constexpr double kMostTokens = 0x1p40;
constexpr double kMostMicroBatches = 1'000'000;

// The verbs that take these options, one bit each.
constexpr unsigned bit(Planning planning) {
  return 1U << static_cast<unsigned>(planning);
}

constexpr unsigned kPlan = bit(Planning::kOne);
constexpr unsigned kCompare = bit(Planning::kAll);
constexpr unsigned kBench = bit(Planning::kRun);
constexpr unsigned kSimulate = bit(Planning::kSimulate);
constexpr unsigned kPlansOnly = kPlan | kCompare | kSimulate;
constexpr unsigned kEverywhere = kPlansOnly | kBench;

// An option of some of the verbs. One whose help differs has a row for each.
struct SharedRow {
  unsigned verbs;
  OptionRow row;
};

OptionRows rows_for(Planning planning, const char* heading,
                    std::vector<SharedRow> all) {
  OptionRows rows;
  for (SharedRow& one : all)
    if ((one.verbs & bit(planning)) != 0) rows.push_back(std::move(one.row));
  return in_group(heading, std::move(rows));
}

std::vector<SharedRow> input_rows(PlanArguments& a) {
  return {
      {kEverywhere,
       option("--model", a.model, "MODEL",
              "preset or HF config.json (`canzona models` lists both kinds), "
              "safetensors file or index, or JSON list of shapes")},
      {kEverywhere,
       flag("--fused", a.fused,
            "fuse q, k, v into one tensor, and gate and up into another")},
      {kEverywhere, number("--layers", a.layers, 1, kMaxLayers, "N",
                           "use only the first N layers")
                        .by_default("all")},
      {kEverywhere,
       option(
           "--scale", a.scale, "1/N",
           "divide every width by N, but keep the number of heads and experts")
           .by_default("1")},
      {kEverywhere,
       option(
           "--matrix-rule", a.matrix_rule, "PATTERN",
           "give tensors with matching names to the matrix rule; repeatable")},
      {kEverywhere, option("--adamw", a.adamw, "PATTERN",
                           "give tensors with matching names to AdamW; "
                           "repeatable, the last match wins")},
      {kPlan, option("--mesh", a.mesh, "AXES",
                     cat(kAxesHelp, "; auto: the fastest, with --ranks"))},
      {kCompare | kSimulate | kBench,
       option("--mesh", a.mesh, "AXES", kAxesHelp)}};
}

// What a search for a mesh is given.
std::vector<SharedRow> mesh_rows(PlanArguments& a) {
  constexpr unsigned kSearches = kPlan | kCompare;
  return {{kCompare, flag("--meshes", a.meshes,
                          "compare the best mesh of each kind, instead of "
                          "strategies on a given one; with --ranks")},
          {kSearches, number("--ranks", a.ranks, 1, kMostClusterRanks, "N",
                             "number of ranks, of which meshes are made")},
          {kSearches, option("--fix", a.fix, "NAME=VALUE",
                             "keep to this value: tp=8, zero=hier:8, "
                             "recompute=off (docs/mesh.md); repeatable")},
          {kSearches, option("--forbid", a.forbid, "NAME",
                             "leave this out: pp, tp, ep, zero, recompute; "
                             "repeatable")}};
}

std::vector<SharedRow> storage_rows(PlanArguments& a) {
  return {
      {kPlan, option("--storage", a.storage, "FILE",
                     "instead of all these: a JSON file of tensors, rules and "
                     "what each rank already stores (docs/plan.md)")}};
}

std::vector<SharedRow> torch_rows(PlanArguments& a) {
  return {
      {kPlan, option("--layout", a.layout, "LAYOUT",
                     "plan for PyTorch: ddp, fsdp2, or hsdp:N, where N ranks "
                     "share a copy; --mesh has dp and tp")
                  .offering({"ddp", "fsdp2", "hsdp:8"})},
      {kPlan, option("--dtype", a.dtype, "DTYPE",
                     "dtype of the parameters: bf16 or fp32")
                  .offering({"bf16", "fp32"})
                  .by_default("fp32")},
      {kPlan, option("--wire", a.wire, "DTYPE",
                     "dtype in which ranks send numbers: bf16 or fp32")
                  .offering({"bf16", "fp32"})
                  .by_default("fp32")},
      {kPlan, flag("--share-states", a.share_states,
                   "replicas store states at owners only")}};
}

std::vector<SharedRow> rule_rows(PlanArguments& a) {
  return {
      {kEverywhere, option("--rule", a.rule, "RULE", kRuleHelp)},
      {kEverywhere, option("--rule-option", a.rule_options, "NAME=VALUE",
                           "an option of the rule (see canzona rules RULE); "
                           "repeatable")},
      {kEverywhere, option("--newton-schulz", a.newton_schulz, "FORM",
                           join(rules_with("newton_schulz"), ", "))
                        .one_of({"standard", "symmetric", "gram", "auto"})
                        .by_default("auto")},
      {kEverywhere, option("--phases", a.phases, "S",
                           cat(join(rules_with("phases"), ", "),
                               ": spread refreshes over S steps"))
                        .by_default("1")}};
}

// Memory that is counted beside the plan.
std::vector<SharedRow> memory_rows(PlanArguments& a) {
  return {
      {kPlansOnly, number("--tokens", a.tokens, 0, kMostTokens, "N",
                          "tokens per micro-batch and data-parallel rank, for "
                          "activations and predicted times; 0: count neither")
                       .by_default("4096")},
      {kPlan | kCompare,
       number(
           "--global-batch", a.global_batch, 1, kMostTokens, "TOKENS",
           "tokens per iteration on all ranks, at which predictions are "
           "compared, such as 4M (4 x 1024 x 1024); it determines the number "
           "of micro-batches")
           .by_default(
               cat(kUsualGlobalBatch, ", or what --micro-batches make"))},
      {kSimulate,
       number("--global-batch", a.global_batch, 1, kMostTokens, "TOKENS",
              "tokens per iteration on all ranks; it determines "
              "the number of micro-batches")
           .by_default("what --micro-batches make")},
      {kBench, number("--micro-batches", a.micro_batches, 1, kMostMicroBatches,
                      "N", "micro-batches per step and data-parallel rank")
                   .by_default("1")},
      {kPlansOnly,
       number("--micro-batches", a.micro_batches, 1, kMostTokens, "N",
              "micro-batches per iteration and data-parallel rank; up to pp of "
              "them are in flight")
           .by_default("what --global-batch needs")},
      {kPlansOnly, flag("--recompute", a.recompute, kRecomputeHelp)},
      {kPlansOnly, option("--activations", a.activations, "DTYPE",
                          "dtype of activations: bf16 or fp32; none: not "
                          "counted")
                       .offering({"bf16", "fp32", "none"})
                       .by_default("bf16")},
      {kPlansOnly, option("--gradients", a.gradients, "DTYPE",
                          "dtype of gradients at rest: bf16 or fp32; sums are "
                          "fp32")
                       .offering({"bf16", "fp32"})
                       .by_default("fp32")}};
}

// The work of an iteration, and the speed of ranks.
std::vector<SharedRow> work_rows(PlanArguments& a) {
  return {
      {kPlansOnly,
       number("--length", a.length, 1, kMostTokens, "N", "tokens per sequence")
           .by_default("4096, or --tokens if fewer")},
      {kPlansOnly, number("--tflops", a.tflops, 1e-6, 1e9, "X",
                          "Tflop/s that a rank reaches in forward and backward")
                       .by_default("the GPU's, or 400, nominal")}};
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const KnownGpu& gpu : known_gpus()) names.push_back(gpu.name);
  return names;
}

std::vector<SharedRow> cluster_rows(PlanArguments& a) {
  return {
      {kPlansOnly, option("--gpu", a.gpu, "NAME",
                          "the GPU of every rank (listed below): its rates, "
                          "links, node and memory")
                       .offering(gpu_names())},
      {kPlansOnly, number("--nodes", a.nodes, 1, kMaxWorld, "N",
                          "nodes that the ranks are on")
                       .by_default("as many as it takes")},
      // A cluster's file describes everything else.
      {kSimulate, option("--cluster", a.cluster, "FILE",
                         "instead of --gpu: a JSON file of cards, levels of "
                         "links and the spread between ranks "
                         "(docs/clusters.md)")},
      {kPlan | kCompare,
       option("--cluster", a.cluster, "FILE",
              "a file of cards and links (docs/clusters.md), where the mesh "
              "is searched for")},
      {kEverywhere, option("--cost", a.cost, "FILE", "table of measured costs")
                        .by_default("none: a nominal rate")}};
}

// Where a verb takes something else than the table says: the flag's name, its
// help, words or default; "", no words and null: as in the table.
struct Difference {
  unsigned verbs;
  const char* option;
  const char* flag = "";
  const char* help = "";
  std::vector<std::string> words = {};
  const char* usual = nullptr;
};

std::vector<Difference> differences() {
  std::vector<std::string> all_sizes = {"none", "zero1", "zero2", "zero3"};
  const std::vector<std::string> given_sizes = all_sizes;
  all_sizes.emplace_back("all");
  std::vector<std::string> with_any = planner_option("strategy").words;
  with_any.emplace_back("any");
  // clang-format off
  return {
      {kPlan, "strategy", "", "how owners of matrices are chosen (listed below); any: the best of all, with --zero auto", with_any},
      {kSimulate, "strategy", "", "how owners of matrices are chosen (listed below)"},
      {kCompare, "strategy", "--strategies", "strategies to compare (listed below), joined by commas", {}, "all"},
      {kBench, "strategy", "", "strategies to run (listed below), joined by commas", {}, "all"},
      {kBench, "memory-cap", "", "most memory that a rank may need, 0: no cap"},
      {kCompare, "zero", "", "compare sizes instead of strategies: all, or several (see docs/zero.md) joined by ';'", all_sizes, ""},
      {kBench, "zero", "", "sizes to run: all, or several (see docs/zero.md) joined by ';'", all_sizes},
      {kSimulate, "zero", "", "how to shard states, gradients and parameters: none, zero1, zero2, zero3, replica:Z, hier:Z, or z1=..,z2=..,z3=..", given_sizes},
      {kCompare | kSimulate | kBench, "zero-experts", "", "", given_sizes},
      {kBench, "overlap", "", "overlap to run: none, main, background or all, several joined by commas", {"none", "main", "background", "all"}},
      {kSimulate, "collectives", "", "how sums and gathers reach other nodes: direct, each rank to each; node, once per node; ring; auto, node where no bit changes", simulated_collectives(), "the file's, or direct"},
      {kBench, "collectives", "", "", {}, "direct; auto on GPUs"},
      {kBench, "link", "", "model links between threads, such as intra=2GB/s,inter=0.2GB/s,latency=20us", {}, "none: memory"},
  };
  // clang-format on
}

OptionRow planner_row(const PlannerOption& o, std::string& text,
                      unsigned verb) {
  std::string flag = o.flag(), help = o.help, usual = o.shown_default();
  std::vector<std::string> words = o.words;
  bool lists_words = !words.empty() && !o.names_words;
  for (const Difference& other : differences()) {
    if (other.option != o.name || (other.verbs & verb) == 0) continue;
    if (*other.flag != '\0') flag = other.flag;
    if (*other.help != '\0') {
      help = other.help;
      lists_words = false;
    }
    if (!other.words.empty()) words = other.words;
    if (other.usual != nullptr) usual = other.usual;
  }
  OptionRow row =
      option(flag.c_str(), text, o.label.c_str(), help).by_default(usual);
  return lists_words ? std::move(row).one_of(words)
                     : std::move(row).offering(words);
}

// The rows of the planner's table.
OptionRows planner_rows(Planning planning, PlannerGroup group,
                        const char* heading, PlanArguments& a) {
  OptionRows rows;
  for (const PlannerOption& o : planner_options())
    if (o.group == group)
      rows.push_back(planner_row(o, a.planner[o.name], bit(planning)));
  return in_group(heading, std::move(rows));
}

std::vector<SharedRow> output_rows(PlanArguments& a) {
  return {{kPlan,
           option("-o,--output", a.output, "FILE", "write the plan as JSON")},
          {kPlansOnly, option("--html", a.html, "FILE",
                              "write a report that opens in a browser")},
          {kEverywhere, json_flag(a.json)}};
}

std::string help_line(const std::string& name, const std::string& text) {
  return labelled(Ink(), name, text, kNameColumn);
}

}  // namespace

std::vector<std::string> simulated_collectives() {
  return {"direct", "node", "ring", "auto"};
}

OptionRows plan_options(Planning planning, PlanArguments& a) {
  const auto rows = [&](const char* heading, std::vector<SharedRow> all) {
    return rows_for(planning, heading, std::move(all));
  };
  const auto of_planner = [&](const char* heading, PlannerGroup group) {
    return planner_rows(planning, group, heading, a);
  };
  constexpr const char* kInput = "Model and ranks";
  constexpr const char* kMemory = "Memory";
  constexpr const char* kZero = "Hierarchical ZeRO";
  constexpr const char* kMeshes = "Search for a mesh";
  constexpr const char* kCluster = "Cluster";
  return joined(
      {rows(kInput, input_rows(a)), of_planner(kInput, PlannerGroup::kInput),
       rows(kMeshes, mesh_rows(a)), rows(kInput, storage_rows(a)),
       rows("PyTorch", torch_rows(a)), rows("Rule", rule_rows(a)),
       of_planner("Planning", PlannerGroup::kPlanning),
       of_planner(kMemory, PlannerGroup::kMemory),
       rows(kMemory, memory_rows(a)), of_planner(kZero, PlannerGroup::kZero),
       rows(kZero, work_rows(a)), rows(kCluster, cluster_rows(a)),
       of_planner(kCluster, PlannerGroup::kCluster),
       rows("Output", output_rows(a))});
}

OptionRows memory_options(PlanArguments& a) {
  return rows_for(Planning::kOne, "Memory", memory_rows(a));
}

Verb add_planning_verb(CLI::App& root, Planning planning, VerbDeclaration verb,
                       PlanRun run) {
  auto arguments = std::make_shared<PlanArguments>();
  verb.options = plan_options(planning, *arguments);
  verb.run = [arguments, run](const Output& out) {
    return run(*arguments, out);
  };
  const Verb added = add_verb(root, verb);
  arguments->app = added.app;
  return added;
}

std::vector<RouteOverride> PlanArguments::overrides() const {
  if (app == nullptr) return {};  // the user gave neither list
  const CLI::Option* matrix_rule_option = app->get_option("--matrix-rule");
  const CLI::Option* adamw_option = app->get_option("--adamw");
  std::vector<RouteOverride> out;
  size_t next_matrix_rule = 0, next_adamw = 0;
  for (const CLI::Option* option : app->parse_order()) {
    if (option == matrix_rule_option)
      out.push_back({matrix_rule.at(next_matrix_rule++), true});
    if (option == adamw_option) out.push_back({adamw.at(next_adamw++), false});
  }
  return out;
}

std::string PlanArguments::option_beside(
    std::initializer_list<const char*> allowed) const {
  for (const CLI::Option* option : app->get_options()) {
    const bool fits = std::ranges::any_of(
        allowed, [&](const char* name) { return option->check_name(name); });
    if (option->count() > 0 && !fits) return option->get_name();
  }
  return "";
}

std::string rules_help() {
  std::string out = "Rules:\n";
  for (const RuleEntry& entry : rule_table())
    out += help_line(entry.name, entry.summary);
  return out + help_line("", "canzona rules RULE lists the options of a rule");
}

std::string strategies_help() {
  std::string out = "Strategies:\n";
  for (const StrategyInfo& info : strategies())
    out += help_line(info.name, info.summary);
  return out;
}

}  // namespace canzona::cli
