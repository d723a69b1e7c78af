// `canzona simulate`: an iteration on a described cluster, before anybody rents
// it.
#include <algorithm>
#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/report/cluster_view.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/plan_iteration.h"
#include "cli/plan_input.h"
#include "cli/stated_cluster.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kSimulateExamples =
    R"(Examples:
  canzona simulate --model qwen3-32b --mesh dp=32,tp=8 --cluster examples/clusters/h200_nvlink.json
  canzona simulate --model qwen3-32b --mesh dp=32,tp=8 --gpu h100-80 --link inter=25GB/s
  canzona simulate --model qwen3-32b --fused --mesh dp=512,tp=8 --strategy contiguous --cluster c.json
  canzona simulate --model qwen3-235b-a22b --mesh dp=64,ep=8,tp=4 --micro-batches 8 \
    --cluster c.json --collectives node --html cluster.html

A cluster is described by a file: the speed of a card, and levels of links from the node outwards,
each a multiple of the previous one:
  {"format": "canzona.cluster", "version": 1, "name": "two levels",
   "card": {"name": "H200", "tflops": 400, "cost_table": "nvidia_h200.json"},
   "levels": [
     {"name": "node", "ranks": 8, "bytes_per_second": 450e9, "latency_seconds": 3e-6},
     {"name": "cluster", "ranks": 16384, "bytes_per_second": 50e9, "latency_seconds": 1e-5,
      "oversubscription": 1.5}],
   "spread": {"compute": 0.01, "length": 0.3}}
Rates are per rank and direction. `spread` gives standard deviations relative to the mean, of cards and
of sequence lengths. Clusters of 8 to 16,384 ranks are simulated, one rank of each kind. Every number
is predicted. `canzona plan --zero auto` and `compare` choose; `simulate` predicts a given choice.
)";

// A file already has what the options of a GPU by name would say.
void refuse_beside_file(const PlanArguments& a) {
  if (a.cluster.empty() && a.gpu.empty())
    throw UsageError(
        "--gpu or --cluster is required, for example --gpu h200, or --cluster "
        "examples/clusters/h200_nvlink.json");
  if (a.cluster.empty()) return;
  for (const char* option :
       {"--gpu", "--nodes", "--ranks-per-node", "--link", "--tflops", "--cost"})
    if (a.app->count(option) > 0)
      throw UsageError(cat(option, " cannot be combined with --cluster ",
                           quoted(a.cluster, 300), ", which describes it"));
}

// Plans, which can be executed, do not support rings; only the simulation does.
void settle_collectives(const PlanArguments& a, const Cluster& cluster,
                        ZeroOptions& zero, Workload& work) {
  const std::string& word = a.planner["collectives"].empty()
                                ? cluster.collectives
                                : a.planner["collectives"];
  const std::vector<std::string> known = simulated_collectives();
  if (!word.empty() && std::ranges::find(known, word) == known.end())
    throw UsageError(cat("--collectives ", quoted(word), ": expected ",
                         join(known, ", "), did_you_mean(word, known)));
  work.rings = word == "ring";
  zero.reach = word.empty() || work.rings ? Reach::kDirect : parse_reach(word);
}

void read_simulated_zero(const PlanArguments& a, PlanInput& input) {
  const auto read = [](const std::string& text, int32_t homes,
                       const char* option) {
    if (text == "auto")
      throw UsageError(cat(option,
                           " auto: simulate needs given sizes; `canzona plan ",
                           option, " auto` chooses them"));
    return parse_zero(text, homes, option);
  };
  ZeroOptions& zero = input.options.zero;
  const std::string& sizes = a.planner["zero"];
  const std::string& experts = a.planner["zero-experts"];
  if (!sizes.empty()) zero.sizes = read(sizes, input.mesh.homes(), "--zero");
  if (!experts.empty())
    zero.experts = read(experts, input.mesh.expert_homes(), "--zero-experts");
}

Outcome run_simulation(const PlanArguments& given, const Output& out) {
  refuse_beside_file(given);
  std::optional<Cluster> file;
  if (!given.cluster.empty()) file = read_cluster_file(given.cluster);
  PlanArguments arguments = given;
  // Without a global batch, one micro-batch is simulated.
  if (!given.global_batch)
    arguments.micro_batches = given.micro_batches.value_or(1);
  arguments.planner["collectives"].clear();
  std::optional<CostTable> table;
  if (file) table = read_cost_table_of(*file, given.cluster);
  if (!given.cost.empty()) table = read_cost_table(given.cost);
  settle_device(table ? &*table : nullptr, arguments);
  PlanInput input = read_plan_input(arguments);
  input.cost_table = std::move(table);
  if (!input.note.empty()) out.note(input.note);
  const Cluster cluster =
      file ? *file
           : named_cluster(arguments, input.options, input.mesh.world());
  check_cluster(cluster, input.mesh);
  input.options.strategy =
      known_strategy(given.planner.or_usual("strategy"), "--strategy");
  Workload work = read_workload(arguments, input.model, input.mesh);
  if (file)
    apply(cluster, input.options, work);
  else
    work.levels = cluster.levels;
  settle_collectives(given, cluster, input.options.zero, work);
  read_simulated_zero(given, input);
  input.terms =
      read_memory_terms(arguments, input.model, input.mesh, input.options);
  Plan plan = plan_in_terms(input.request(), *input.terms);
  if (input.terms->cap_bytes > 0)
    require_cap(*input.terms, predict_in_terms(plan, *input.terms),
                plan.options.strategy);
  if (!input.cost_table)
    plan = at_rate(std::move(plan), cluster.card.flops_per_second);
  const ShownCluster shown{
      .plan = plan,
      .cluster = cluster,
      .work = work,
      .collectives =
          work.rings ? "ring" : std::string(to_string(plan.options.zero.reach)),
      .activations = input.terms->activations,
      .predicted = predict_cluster(plan, work)};
  if (!given.html.empty()) out.save(given.html, cluster_html(shown), "report");
  out.result(cluster_view(shown), given.json);
  return Outcome::kDone;
}

}  // namespace

Verb add_simulate(CLI::App& root) {
  return add_planning_verb(
      root, Planning::kSimulate,
      {.name = "simulate",
       .description = "predict an iteration of a plan on a described cluster",
       .footer = cat(kSimulateExamples, "\n", strategies_help(), "\n",
                     rules_help(), "\n", gpus_help())},
      run_simulation);
}

}  // namespace canzona::cli
