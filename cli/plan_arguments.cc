#include "cli/plan_arguments.h"

#include <algorithm>
#include <memory>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/mesh.h"
#include "canzona/report/terminal.h"
#include "canzona/rules/facts.h"
#include "cli/options.h"

namespace canzona::cli {
namespace {

constexpr size_t kNameColumn = 16;
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

std::vector<std::string> strategy_words() {
  std::vector<std::string> names;
  for (const StrategyInfo& info : strategies()) names.push_back(info.name);
  return names;
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
       option("--split", a.split, "HOW",
              cat("how to split tensors into matrices: ",
                  join(split_words(), ", "), ", or several joined by commas"))
           .offering(split_words())
           .by_default("none")},
      {kEverywhere,
       option(
           "--matrix-rule", a.matrix_rule, "PATTERN",
           "give tensors with matching names to the matrix rule; repeatable")},
      {kEverywhere, option("--adamw", a.adamw, "PATTERN",
                           "give tensors with matching names to AdamW; "
                           "repeatable, the last match wins")},
      {kEverywhere,
       option("--mesh", a.mesh, "AXES",
              "sizes of the axes dp, cp, tp, pp, ep, such as dp=32,tp=8")},
      {kPlan, option("--placed", a.placed, "FILE",
                     "instead of all these: a JSON file of tensors, rules and "
                     "what each rank already stores (docs/plan.md)")}};
}

std::vector<SharedRow> rule_rows(PlanArguments& a) {
  return {
      {kEverywhere, option("--rule", a.rule, "RULE", "the matrix rule")},
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

std::vector<SharedRow> strategy_rows(PlanArguments& a) {
  const std::vector<std::string> names = strategy_words();
  std::vector<std::string> with_any = names;
  with_any.emplace_back("any");
  return {{kSimulate, option("--strategy", a.strategy, "NAME",
                             "how owners are chosen (listed below)")
                          .offering(names)},
          {kPlan, option("--strategy", a.strategy, "NAME",
                         "how owners are chosen (listed below); any: the best "
                         "of all, with --zero auto")
                      .offering(with_any)},
          {kCompare,
           option("--strategies", a.strategies, "NAMES",
                  "strategies to compare (listed below), joined by commas")
               .offering(names)
               .by_default("all")},
          {kBench, option("--strategy", a.strategies, "NAMES",
                          "strategies to run (listed below), joined by commas")
                       .offering(names)
                       .by_default("all")}};
}

std::vector<SharedRow> budget_rows(PlanArguments& a) {
  constexpr const char* kNoMore = "most memory that a rank may need";
  // What CUDA reports as the total of H100 and H200.
  constexpr const char* kCards =
      "; an 80 GB card has 79GiB, a 141 GB card 139GiB";
  return {
      {kEverywhere, option("--weight", a.weight, "WHAT", "what to balance")
                        .one_of({"numel", "flops", "cost"})
                        .by_default("the strategy's")},
      {kEverywhere,
       number("--alpha", a.alpha, 0, 1, "A",
              "how unevenly bytes may be distributed, 0 (even) to 1 (free)")
           .by_default("the strategy's")},
      {kEverywhere, number("--bucket-elements", a.bucket_elements, 1, 0x1p63,
                           "N", "a bucket closes at N elements of tp shards")
                        .by_default(cat(kUsualBucketElements,
                                        ", more where buckets of balanced "
                                        "would be uneven"))},
      {kEverywhere,
       option("--micro-groups", a.micro_groups, "MODE",
              "how matrices are grouped: none, sorted, capacity or balanced")
           .offering(micro_group_modes())
           .by_default("the strategy's")},
      {kEverywhere, option("--teams", a.teams, "SIZE",
                           "let 2, 4 or 8 ranks of one home and node share a "
                           "matrix by strips if the step is predicted to be 3 "
                           "% shorter: off, auto, or the largest team size")
                        .offering({"auto", "off", "2", "4", "8"})
                        .by_default("off")},
      {kEverywhere, option("--capacity", a.capacity, "BYTES",
                           "most fp32 bytes of shards per owner and "
                           "micro-group; 0: no grouping")
                        .by_default("1600MiB")},
      {kBench, option("--memory-cap", a.memory_cap, "BYTES",
                      cat(kNoMore, ", 0: no cap"))
                   .by_default("0")},
      {kPlansOnly,
       option("--memory-cap", a.memory_cap, "BYTES",
              cat(kNoMore, ", activations included, 0: no cap", kCards))
           .by_default("0")},
      {kEverywhere, option("--parameters", a.parameters, "DTYPE",
                           "dtype of the model's parameters")
                        .one_of({"bf16", "fp32"})
                        .by_default("bf16")}};
}

// Memory that is counted beside the plan.
std::vector<SharedRow> memory_rows(PlanArguments& a) {
  return {
      {kPlansOnly, number("--tokens", a.tokens, 0, kMostTokens, "N",
                          "tokens per micro-batch and data-parallel rank, for "
                          "activations and predicted times; 0: count neither")
                       .by_default("4096")},
      {kPlan | kCompare,
       number("--global-batch", a.global_batch, 1, kMostTokens, "TOKENS",
              "tokens per iteration on all ranks, at which predictions are "
              "compared; it determines the number of micro-batches")
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
      {kPlansOnly,
       flag("--recompute", a.recompute,
            "layers store only their input and are recomputed in backward")},
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

std::vector<SharedRow> size_rows(PlanArguments& a) {
  constexpr const char* kCut =
      "how to shard states, gradients and parameters: none, zero1, zero2, "
      "zero3, "
      "replica:Z, hier:Z, ";
  constexpr const char* kSame =
      "the same for experts, over their own data-parallel ranks";
  constexpr const char* kDense = "on the ranks of dense tensors";
  std::vector<std::string> sizes = {"none", "zero1", "zero2", "zero3"};
  const std::vector<std::string> simulated = sizes;
  sizes.emplace_back("auto");
  std::vector<std::string> compared = simulated;
  compared.emplace_back("all");
  return {
      {kCompare, option("--zero", a.zero, "SIZES",
                        "compare sizes instead of strategies: all, or several "
                        "(see docs/zero.md) joined by ';'")
                     .offering(compared)},
      {kBench, option("--zero", a.zero, "SIZES",
                      "sizes to run: all, or several (see docs/zero.md) joined "
                      "by ';'")
                   .offering(compared)
                   .by_default("zero1")},
      {kSimulate,
       option("--zero", a.zero, "SIZES", cat(kCut, "or z1=..,z2=..,z3=.."))
           .offering(simulated)
           .by_default("zero1")},
      {kPlan, option("--zero", a.zero, "SIZES",
                     cat(kCut, "auto, or z1=..,z2=..,z3=.."))
                  .offering(sizes)
                  .by_default("zero1")},
      {kCompare | kSimulate | kBench,
       option("--zero-experts", a.zero_experts, "SIZES", kSame)
           .by_default(kDense)},
      {kPlan, option("--zero-experts", a.zero_experts, "SIZES",
                     cat(kSame, ", or auto"))
                  .by_default(kDense)}};
}

std::vector<SharedRow> zero_rows(PlanArguments& a) {
  return {
      {kEverywhere,
       option("--message", a.message, "UNIT", "what one message carries")
           .one_of({"module", "parameter"})
           .by_default("module")},
      {kEverywhere,
       option(
           "--prefetch", a.prefetch, "K",
           "modules to gather ahead, or auto: as many as the memory cap allows")
           .offering({"auto"})
           .by_default("auto")},
      {kEverywhere, option("--replica-sum", a.replica_sum, "HOW",
                           "how gradients are summed over groups")
                        .one_of({"scatter", "allreduce"})
                        .by_default("scatter")},
      {kBench, option("--overlap", a.overlap, "MODES",
                      "overlap to run: none, main, background or all, several "
                      "joined by commas")
                   .offering({"none", "main", "background", "all"})
                   .by_default("background")},
      {kPlansOnly,
       option("--overlap", a.overlap, "MODE", "overlap assumed in predictions")
           .one_of({"none", "main", "background"})
           .by_default("background")},
      {kPlansOnly,
       number("--length", a.length, 1, kMostTokens, "N", "tokens per sequence")
           .by_default("4096, or --tokens if fewer")},
      {kPlan | kCompare,
       number("--tflops", a.tflops, 1e-6, 1e9, "X",
              "Tflop/s that a rank reaches in forward and backward")
           .by_default("400, nominal")}};
}

std::vector<SharedRow> cluster_rows(PlanArguments& a) {
  constexpr const char* kReach = "how sums and gathers reach other nodes: ";
  const std::string planned =
      cat(kReach,
          "direct, each of their ranks; node, once per node; auto, node if "
          "every group has a power of two of ranks on each node");
  constexpr unsigned kDescribed = kPlan | kCompare | kBench;
  return {
      // A cluster's file describes everything else.
      {kSimulate, option("--cluster", a.cluster, "FILE",
                         "a JSON file of cards, levels of links and the spread "
                         "between ranks (docs/clusters.md)")},
      {kSimulate, option("--collectives", a.collectives, "HOW",
                         cat(kReach,
                             "direct, each rank to each; node, once per node; "
                             "ring; auto, node where no bit changes"))
                      .offering(simulated_collectives())
                      .by_default("the file's, or direct")},
      {kDescribed, option("--cost", a.cost, "FILE", "table of measured costs")
                       .by_default("none: a nominal rate")},
      {kBench, option("--link", a.link, "SPEEDS",
                      "model links between threads, such as "
                      "intra=2GB/s,inter=0.2GB/s,latency=20us")
                   .by_default("none: memory")},
      {kPlan | kCompare,
       option("--link", a.link, "SPEEDS",
              "speed of links, such as intra=400GB/s,inter=50GB/s,latency=10us")
           .by_default("these, nominal")},
      {kDescribed, number("--ranks-per-node", a.ranks_per_node, 1, kMaxWorld,
                          "N", "consecutive ranks that share a node")
                       .by_default(cat(PlanOptions().ranks_per_node))},
      {kBench, option("--collectives", a.collectives, "HOW", planned)
                   .offering({"direct", "node", "auto"})
                   .by_default("direct; auto on GPUs")},
      {kPlan | kCompare, option("--collectives", a.collectives, "HOW", planned)
                             .offering({"direct", "node", "auto"})
                             .by_default("direct")}};
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

const std::vector<std::string>& split_words() {
  static const std::vector<std::string> all = {"none", "qkv", "head", "gate-up",
                                               "expert"};
  return all;
}

const std::vector<std::string>& simulated_collectives() {
  static const std::vector<std::string> all = {"direct", "node", "ring",
                                               "auto"};
  return all;
}

OptionRows plan_options(Planning planning, PlanArguments& a) {
  const auto rows = [&](const char* heading, std::vector<SharedRow> all) {
    return rows_for(planning, heading, std::move(all));
  };
  constexpr const char* kHow = "Planning";
  constexpr const char* kZero = "Hierarchical ZeRO";
  return joined({rows("Model and ranks", input_rows(a)),
                 rows("Rule", rule_rows(a)), rows(kHow, strategy_rows(a)),
                 rows(kHow, budget_rows(a)), rows("Memory", memory_rows(a)),
                 rows(kZero, size_rows(a)), rows(kZero, zero_rows(a)),
                 rows("Cluster", cluster_rows(a)),
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
