#include "cli/plan_mesh.h"

#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/report/mesh_view.h"
#include "canzona/report/models_view.h"
#include "canzona/sim/mesh_changes.h"
#include "canzona/sim/mesh_search.h"
#include "canzona/sim/prediction_inputs.h"
#include "cli/all_cores.h"
#include "cli/plan_input.h"
#include "cli/stated_cluster.h"

namespace canzona::cli {
namespace {

// What is asked, and what the question refers to.
struct MeshInput {
  PlanInput plan;
  std::optional<Cluster> cluster;
  MeshQuestion question;
};

// --nodes stands for --ranks, too.
PlanArguments with_ranks(PlanArguments arguments) {
  if (!arguments.ranks) arguments.ranks = stated_ranks(arguments);
  return arguments;
}

void require_search(const PlanArguments& a) {
  if (!a.ranks)
    throw UsageError(
        cat(a.meshes ? "--meshes" : "--mesh auto",
            " requires --ranks, such as --ranks 64, or --nodes 8"));
  if (a.model.empty())
    throw UsageError("--model is required, for example --model qwen3-32b");
  if (a.meshes && !a.mesh.empty())
    throw UsageError(cat("--meshes: --mesh ", quoted(a.mesh),
                         " cannot be combined with it; --fix keeps an axis, "
                         "such as --fix tp=8"));
  const char* beside = a.micro_batches             ? "--micro-batches"
                       : !a.layout.empty()         ? "--layout"
                       : !a.storage.empty()        ? "--storage"
                       : a.tokens.value_or(1) == 0 ? "--tokens 0"
                                                   : nullptr;
  if (beside != nullptr)
    throw UsageError(cat(beside,
                         ": cannot be combined with a search for a mesh; "
                         "--global-batch and --tokens say what an iteration "
                         "consists of"));
}

// Options of a given mesh keep what they say.
MeshLimits read_limits(const PlanArguments& a) {
  MeshLimits limits;
  const auto keep = [&](const char* option, const char* name) {
    std::string value = a.planner[option];
    if (value.empty() || value == "auto") return;
    for (char& c : value)
      if (c == ',') c = ':';
    limits.fix(cat(name, "=", value), cat("--", option));
  };
  keep("zero", "zero");
  keep("zero-experts", "zero-experts");
  keep("collectives", "collectives");
  if (a.tokens) limits.tokens = *a.tokens;
  if (a.recompute) limits.recompute = true;
  for (const std::string& text : a.fix) limits.fix(text, "--fix");
  for (const std::string& text : a.forbid) limits.forbid(text, "--forbid");
  return limits;
}

// The work of an iteration without its division into micro-batches.
Workload undivided_work(const PlanArguments& given, const Model& model) {
  PlanArguments arguments = given;
  arguments.global_batch.reset();
  arguments.micro_batches = 1;
  return read_workload(arguments, model, Mesh());
}

void use_cluster(const PlanArguments& a, MeshInput& input) {
  const Cluster& cluster = *input.cluster;
  check_cluster(cluster, Mesh{.dp = static_cast<int32_t>(*a.ranks)});
  MeshQuestion& q = input.question;
  apply(cluster, q.options, q.work);
  if (!input.plan.cost_table)
    q.cost_basis =
        CostBasis{.seconds_per_tick = 1 / cluster.card.flops_per_second};
}

// What the numbers stand on, and what of it is known to be off.
std::vector<std::string> inputs_of(const MeshInput& input,
                                   const MeshChoice& choice) {
  const MeshQuestion& q = input.question;
  CostBasis cost{.seconds_per_tick = 1 / kNominalFlopsPerSecond};
  if (q.cost_basis) cost = *q.cost_basis;
  if (q.cost_table != nullptr) cost.source = q.cost_table->device();
  const std::string rule(q.rule->name());
  const Workload work = work_of(q, choice);
  const PredictionBasis basis{*q.model, choice.mesh,     rule,
                              cost,     q.options.links, work};
  std::vector<std::string> inputs = {describe_inputs(basis)};
  for (const std::string& gap : known_gaps(basis))
    inputs.push_back("known to be off: " + gap);
  for (const std::string& pattern : unplaced_tensors(*q.model))
    inputs.push_back(cat("not placed by its name, whole on every tp rank: ",
                         printable(pattern)));
  return inputs;
}

MeshInput read_mesh_input(const PlanArguments& given, const Output& out) {
  require_search(given);
  MeshInput input;
  PlanArguments arguments = given;
  arguments.planner["zero"].clear();
  arguments.planner["zero-experts"].clear();
  const MeshLimits limits = read_limits(given);
  std::optional<CostTable> table;
  if (!given.cluster.empty()) {
    input.cluster = read_cluster_file(given.cluster);
    table = read_cost_table_of(*input.cluster, given.cluster);
  }
  // A table that was measured and named beats that of the description.
  if (!given.cost.empty()) table = read_cost_table(given.cost);
  if (input.cluster || !given.gpu.empty())
    settle_device(table ? &*table : nullptr, arguments);
  input.plan = read_input_of_any_mesh(arguments, *given.ranks,
                                      cat("--ranks ", *given.ranks));
  if (!input.plan.note.empty()) out.note(input.plan.note);
  input.plan.cost_table = std::move(table);
  input.plan.options.strategy =
      known_strategy(given.planner.or_usual("strategy"), "--strategy");
  MeshQuestion& q = input.question;
  q.ranks = static_cast<int32_t>(*given.ranks);
  q.options = input.plan.options;
  q.work = undivided_work(given, input.plan.model);
  q.limits = limits;
  q.global_batch = given.global_batch.value_or(kUsualGlobalBatch);
  if (input.cluster) use_cluster(given, input);
  if (!given.gpu.empty() && !input.plan.cost_table)
    q.cost_basis =
        CostBasis{.seconds_per_tick = 1 / input.plan.flops_per_second};
  const MemoryTerms terms =
      read_memory_terms(given, input.plan.model, Mesh(), PlanOptions());
  q.gradients = terms.gradients;
  q.experts_assumed = terms.load.experts_assumed;
  q.activations =
      terms.load.tokens > 0 ? std::optional(terms.load.dtype) : std::nullopt;
  return input;
}

// What is told while the search goes on.
std::string progress_text(const char* what, const MeshProgress& p) {
  if (p.best_seconds == 0) return cat(what, ": ", p.planned, " planned");
  return cat(what, ": ", p.planned, " planned, best ",
             human_seconds(p.best_seconds), ", at least ",
             human_seconds(p.bound_seconds));
}

// The question refers to the input, which must not move any more.
void complete(MeshInput& input, const Output& out) {
  MeshQuestion& q = input.question;
  q.model = &input.plan.model;
  q.rule = input.plan.rule.get();
  if (input.plan.cost_table) q.cost_table = &*input.plan.cost_table;
  q.each = on_all_cores("", out);
  q.progress = [&out](const MeshProgress& p) {
    out.progress(progress_text("searching meshes", p));
  };
}

MeshAnswer search(const MeshInput& input, const Output& out) {
  MeshAnswer answer = search_meshes(input.question);
  out.progress("");
  const int64_t cap = input.question.options.memory_cap_bytes;
  if (!answer.is_found())
    throw UsageError(
        cat(cap > 0 ? "--memory-cap: " : "--mesh auto: ", answer.summary()));
  if (cap == 0)
    out.note("no --memory-cap: nothing limits the memory of a rank");
  return answer;
}

LaunchedMesh launched(const PlanArguments& a, const MeshQuestion& q,
                      const MeshChoice& c) {
  const PlanOptions options = options_of(q, c);
  LaunchedMesh out{.model = a.model,
                   .rule = std::string(q.rule->name()),
                   .mesh = c.mesh,
                   .zero = options.zero,
                   .ranks_per_node = options.ranks_per_node,
                   .tokens = c.tokens,
                   .num_micro_batches = c.num_micro_batches,
                   .length = q.work.compute.length,
                   .recompute = c.recompute};
  out.untrained = a.layers || !a.scale.empty() || a.fused
                      ? "it has no --layers, --scale and --fused"
                      : why_untrained(a.model);
  return out;
}

std::vector<MeshCommand> commands_of(const PlanArguments& a,
                                     const MeshQuestion& q,
                                     const MeshAnswer& answer) {
  std::vector<LaunchedMesh> layouts;
  for (const RankedMesh& one : answer.kinds)
    layouts.push_back(launched(a, q, one.weighed.choice));
  return mesh_commands(layouts);
}

// Plans the choice as the search did, for plan.json.
void save_plan(const PlanArguments& a, MeshInput& input,
               const MeshChoice& choice, const Output& out) {
  PlanInput& plan = input.plan;
  plan.mesh = choice.mesh;
  plan.options = options_of(input.question, choice);
  plan.terms = terms_of(input.question, choice);
  const ReportPlan shown = plan_once(plan, plan.options.strategy);
  out.save(a.output, plan_to_json(shown.plan), "plan");
}

std::vector<MeshChange> changes_of(const MeshQuestion& question,
                                   const MeshAnswer& answer,
                                   const Output& out) {
  MeshQuestion otherwise = question;
  otherwise.progress = [&out](const MeshProgress& p) {
    out.progress(progress_text("if things are otherwise", p));
  };
  std::vector<MeshChange> changes = mesh_changes(otherwise, answer.best());
  out.progress("");
  return changes;
}

}  // namespace

void refuse_mesh_options(const PlanArguments& a) {
  const char* given = a.ranks              ? "--ranks"
                      : !a.fix.empty()     ? "--fix"
                      : !a.forbid.empty()  ? "--forbid"
                      : !a.cluster.empty() ? "--cluster"
                                           : nullptr;
  if (given != nullptr)
    throw UsageError(cat(given,
                         " requires a search for a mesh: --mesh auto of "
                         "canzona plan, --meshes of canzona compare"));
}

Outcome plan_mesh(const PlanArguments& given, const Output& out) {
  const PlanArguments arguments = with_ranks(given);
  MeshInput input = read_mesh_input(arguments, out);
  complete(input, out);
  const MeshAnswer answer = search(input, out);
  const MeshQuestion& q = input.question;
  const ShownMeshes shown{.question = q,
                          .answer = answer,
                          .inputs = inputs_of(input, answer.best().choice),
                          .changes = changes_of(q, answer, out),
                          .commands = commands_of(arguments, q, answer)};
  if (!arguments.output.empty())
    save_plan(arguments, input, answer.best().choice, out);
  if (!arguments.html.empty())
    out.save(arguments.html, mesh_html(shown), "report");
  out.result(mesh_view(shown), arguments.json);
  return Outcome::kDone;
}

Outcome compare_meshes(const PlanArguments& given, const Output& out) {
  const PlanArguments arguments = with_ranks(given);
  MeshInput input = read_mesh_input(arguments, out);
  complete(input, out);
  const MeshAnswer answer = search(input, out);
  const ShownMeshes shown{.question = input.question,
                          .answer = answer,
                          .inputs = inputs_of(input, answer.best().choice)};
  if (!arguments.html.empty())
    out.save(arguments.html, mesh_html(shown), "report");
  out.result(meshes_view(shown), arguments.json);
  return Outcome::kDone;
}

}  // namespace canzona::cli
