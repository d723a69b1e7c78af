#include "canzona/report/plan_view.h"

#include <fmt/format.h>

#include "canzona/base/text.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/report/models_view.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/team_view.h"
#include "canzona/report/zero_view.h"

namespace canzona::report {
namespace {

constexpr size_t kLabel = 10;

double elements_of(const Model& model) {
  double elements = 0;
  for (const Tensor& tensor : model.tensors)
    elements += static_cast<double>(tensor.elements());
  return elements;
}

std::string model_line(const Plan& plan) {
  return fmt::format(
      "{}, {}, split {}: {} parameters, {}, {}", printable(plan.model.name),
      plan.model.fused ? "fused" : "separate", to_string(plan.options.splits),
      human_count(elements_of(plan.model)),
      counted(std::ssize(plan.model.tensors), "tensor"),
      counted(std::ssize(plan.matrices), "matrix"));
}

std::string mesh_line(const Plan& plan) {
  return fmt::format("{}: {}, {} per node", to_string(plan.mesh),
                     counted(plan.mesh.world(), "rank"),
                     plan.options.ranks_per_node);
}

std::string strategy_line(const PlanOptions& options) {
  std::string out = options.strategy;
  if (options.weight)
    out += fmt::format(", weight {}", to_string(*options.weight));
  if (options.alpha) out += fmt::format(", alpha {:.4g}", *options.alpha);
  if (!options.micro_groups.empty())
    out += ", micro-groups " + options.micro_groups;
  out += fmt::format(", capacity {}", human_bytes(options.capacity_bytes));
  if (options.memory_cap_bytes > 0)
    out += ", memory cap " + human_bytes(options.memory_cap_bytes);
  return out;
}

std::string buckets_line(const Plan& plan) {
  return fmt::format(
      "{}, closed at ≥ {} elements of tp shards, {} parameters",
      num_buckets(plan),
      human_count(static_cast<double>(plan.options.bucket_elements)),
      to_string(plan.options.parameters));
}

Document options_of(const PlanOptions& options) {
  Document out;
  out.set("micro_groups", options.micro_groups);
  out.set("split", to_string(options.splits));
  out.set("bucket_elements", options.bucket_elements);
  if (options.alpha) out.set("alpha", *options.alpha);
  if (options.weight) out.set("weight", to_string(*options.weight));
  out.set("capacity_bytes", options.capacity_bytes);
  out.set("memory_cap_bytes", options.memory_cap_bytes);
  out.set("ranks_per_node", options.ranks_per_node);
  out.set("parameters", to_string(options.parameters));
  if (options.teams != kTeamsOff) out.set("teams", teams_text(options.teams));
  return out;
}

Value basis_value(const CostBasis& basis) {
  Members out = {{"source", basis.source},
                 {"nominal", is_nominal(basis)},
                 {"seconds_per_tick", basis.seconds_per_tick}};
  if (basis.element_wise_bytes_per_second > 0)
    out.push_back(
        {"element_wise_bytes_per_second", basis.element_wise_bytes_per_second});
  return out;
}

Value links_value(const Links& links) {
  Members out = {{"nominal", links.nominal},
                 {"intra_bytes_per_second", links.intra_bytes_per_second},
                 {"inter_bytes_per_second", links.inter_bytes_per_second},
                 {"latency_seconds", links.latency_seconds}};
  if (links.intra_latency_seconds)
    out.push_back({"intra_latency_seconds", *links.intra_latency_seconds});
  return out;
}

void add_axis(const std::string& name, const AxisBalance& axis, Listing& axes) {
  axes.add({{"", "<largest / mean", name},
            {"", ">memory", as_ratio(axis.memory_max_over_mean)},
            {"", ">shard flops", as_ratio(axis.shard_flops_max_over_mean)},
            {"", ">cost", as_ratio(axis.cost_max_over_mean)}});
}

// Says what the memory figures include, and what they are compared with.
void add_terms(const ReportPlan& shown, Document& out) {
  if (!shown.terms) return;
  const std::string activations =
      describe_activations(*shown.terms, shown.plan.mesh);
  out.note("activations: " + activations);
  out.set("counted_memory", counted_memory(shown));
  out.set("activations_text", activations);
  if (shown.terms->gradients != DType::kFp32)
    out.note(cat("gradients: ", to_string(shown.terms->gradients),
                 " at rest, sums in fp32"));
  if (shown.terms->cap_bytes > 0)
    out.note(cat("the largest total, ",
                 human_bytes(fullest_memory(shown.ranks).total().value() +
                             shown.terms->activations),
                 ", is within the cap of ",
                 human_bytes(shown.terms->cap_bytes)));
}

// Shows the bound for whole owners, and for teams where they are allowed.
std::string bounds_line(const Balance& b) {
  if (!(b.team_bound_over_mean > 0))
    return ratio_text(b.bound_over_mean) + " × mean";
  return fmt::format("{} × mean with teams, {} × with whole owners",
                     ratio_text(b.team_bound_over_mean),
                     ratio_text(b.bound_over_mean));
}

std::string makespan_line(const Balance& b) {
  return fmt::format("  makespan {} × bound, {} × mean · bound {} · {} idle\n",
                     as_ratio(b.makespan_over_bound).text,
                     ratio_text(b.makespan_over_mean), bounds_line(b),
                     counted(b.idle_ranks, "rank"));
}

}  // namespace

std::string rule_text(const Plan& plan) {
  const RuleOptions usual = make_rule_facts(plan.rule, {})->options();
  std::vector<std::string> words;
  for (const auto& [name, value] : plan.rule_options) {
    const auto found = usual.find(name);
    if (found == usual.end() || found->second != value)
      words.push_back(cat(name, "=", value));
  }
  return words.empty() ? plan.rule : cat(plan.rule, ": ", join(words, ", "));
}

std::string cost_source_text(const CostBasis& basis) {
  if (!is_nominal(basis))
    return fmt::format("measured, cost table of {}", printable(basis.source));
  const double rate =
      basis.seconds_per_tick > 0 ? 1 / basis.seconds_per_tick : 0;
  return fmt::format("nominal rate, no cost table ({:g} Tflop/s per rank)",
                     rate / 1e12);
}

std::string links_text(const PlanOptions& options) {
  const Links& links = options.links;
  return fmt::format(
      "{}: {} inside a node, {} between nodes, latency {}{}",
      links.nominal ? "nominal" : "as given",
      bandwidth_text(links.intra_bytes_per_second),
      bandwidth_text(links.inter_bytes_per_second),
      human_seconds(links.latency_seconds),
      links.intra_latency_seconds
          ? cat(", inside a node ", human_seconds(*links.intra_latency_seconds))
          : "");
}

namespace {

Document request_view(const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  Document out;
  out.heading("Plan");
  const auto line = [&](const char* key, const char* name, const Value& value,
                        const std::string& text) {
    out.labelled({key, name, value, text}, kLabel);
  };
  Members options;
  for (const auto& [name, value] : plan.rule_options)
    options.push_back({name, value});
  line("model", "model", plan.model.name, model_line(plan));
  line("mesh", "mesh", mesh_value(plan.mesh), mesh_line(plan));
  line("rule", "rule",
       {{"name", plan.rule},
        {"text", rule_text(plan)},
        {"options", options},
        {"period", plan.period},
        {"phases", plan.phases}},
       rule_text(plan));
  line("strategy", "strategy", plan.options.strategy,
       strategy_line(plan.options));
  if (may_have_teams(plan))
    line("teams", "teams", teams_value(plan), describe_teams(plan));
  line("num_buckets", "buckets", num_buckets(plan), buckets_line(plan));
  line("cost", "cost", basis_value(plan.cost_basis),
       cost_source_text(plan.cost_basis));
  line("links", "links", links_value(plan.options.links),
       links_text(plan.options));
  line("digest", "digest", plan.digest, plan.digest);
  out.set("fused", plan.model.fused);
  out.set("num_tensors", plan.model.tensors.size());
  out.set("elements", elements_of(plan.model)).set("world", plan.mesh.world());
  out.set("num_matrices", plan.matrices.size());
  return out.add("options", options_of(plan.options));
}

Document routing_view(const Plan& plan) {
  Document out;
  out.title("Routing");
  return add_routing(out, "routing", group_tensors(plan.model, plan.matrices),
                     plan.rule);
}

}  // namespace

Document balance_view(const ReportPlan& shown) {
  const Balance& b = shown.balance;
  Document out = balance_members(b);
  out.title("Balance");
  if (shown.plan.matrices.empty())
    return out.line("nothing needs a whole matrix: no owners, no exchange");
  Listing axes;
  add_axis("over dp", b.dp, axes);
  add_axis("over tp, home 0", b.tp, axes);
  add_axis("over tp, worst home", b.tp_worst, axes);
  const double bucket = b.bucket_bytes_max_over_even;
  out.table("", axes);
  out.text(cat("  worst bucket ",
               toned(bucket > kUnevenBucket ? Tone::kPoor : Tone::kPlain,
                     ratio_text(bucket)),
               " × its even share of elements\n"));
  return out.text(makespan_line(b));
}

namespace {

Document loads_view(const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  const std::vector<double> loads = period_loads(plan, shown.ranks);
  const Spread spread = spread_of(loads);
  if (spread.max <= 0) return {};
  Document out;
  out.title("Load per rank");
  out.text(load_picture({.loads = loads,
                         .mean = spread.mean,
                         .row_unit = plan.parts.front().grid.tp},
                        Ink(true)));
  return out.text(fmt::format(
      "  mean {} per step · smallest {} × mean · largest {} × mean (rank {})\n",
      cost_text(plan.cost_basis, spread.mean / plan.period),
      ratio_text(spread.min / spread.mean), ratio_text(spread.max_over_mean()),
      spread.largest));
}

}  // namespace

Document memory_view(const ReportPlan& shown) {
  Listing rows;
  const auto row = [&](const char* name, const auto& figure) {
    const Spread s = spread_over(shown.ranks, figure);
    rows.add({{"", "<kind", name},
              {"", ">largest", as_bytes(s.max)},
              {"", ">mean", as_bytes(s.mean)},
              {"", ">largest / mean",
               s.mean > 0 ? ratio_text(s.max_over_mean()) : "-"}});
  };
  for (const MemoryKind& kind : memory_kinds(shown.plan))
    row(kind.name, [&](const RankCost& rank) {
      return (rank.memory.*kind.field).value();
    });
  const int64_t activations = shown.terms ? shown.terms->activations : 0;
  if (shown.terms)
    row("activations", [&](const RankCost& /*alike*/) { return activations; });
  row("total", [&](const RankCost& rank) {
    return rank.memory.total().value() + activations;
  });
  row("staging of sums, in addition",
      [](const RankCost& rank) { return rank.memory.staging.value(); });
  Document out;
  out.title("Memory per rank").table("", rows);
  add_terms(shown, out);
  return out;
}

namespace {

std::string times_note(const ReportPlan& shown) {
  if (!shown.iteration)
    return "the optimizer step alone: sums of gradients, new parameters, "
           "forward and backward are not counted";
  if (shown.iteration->tokens == 0)
    return "no tokens: forward and backward take no time and hide nothing";
  return cat("an iteration of ", human_count(shown.iteration->tokens),
             " tokens on all ranks, ",
             human_count(shown.iteration->tokens_per_second()),
             " tokens/s; its collectives count where compute does not hide "
             "them, the step does not include them");
}

}  // namespace

Document times_view(const ReportPlan& shown) {
  Listing rows;
  const auto row = [&](const char* name, double seconds) {
    rows.add({{"", "<", name}, {"", ">", as_seconds(seconds)}});
  };
  // The step is a small part of the iteration where collectives are slow.
  if (shown.iteration) {
    const IterationTime& time = shown.iteration->time;
    const std::pair<const char*, double> parts[] = {
        {"predicted iteration", time.seconds},
        {"  forward and backward", time.compute_seconds},
        {"  waiting for collectives", time.waited()},
        {"  bubble of the pipeline", time.bubble_seconds},
        {"  optimizer step", time.step_seconds}};
    for (const auto& [name, seconds] : parts)
      if (seconds > 0) row(name, seconds);
  }
  const PlanSummary& s = shown.plan.summary;
  Document predicted;
  predicted.set("step_seconds_mean", s.step_seconds_mean);
  predicted.set("step_seconds_worst", s.step_seconds_worst);
  Document basis;
  if (shown.iteration) {
    predicted.set("iteration", iteration_value(*shown.iteration));
    add_basis(shown.iteration->inputs, shown.iteration->gaps, basis);
  }
  if (!shown.plan.matrices.empty()) {
    const Spread own = spread_over(shown.ranks, [](const RankCost& rank) {
      return rank.transform_seconds_mean;
    });
    row("predicted step alone, slowest rank", s.step_seconds_mean);
    if (shown.plan.period > 1)
      row("predicted worst step of a period", s.step_seconds_worst);
    if (shown.plan.cost_basis.element_wise_bytes_per_second > 0)
      row("element-wise part of it, slowest rank",
          spread_over(shown.ranks, [](const RankCost& rank) {
            return rank.element_wise_seconds;
          }).max);
    row("predicted transform, slowest rank", own.max);
    row("predicted transform, mean rank", own.mean);
  }
  Document out;
  out.add("predicted", predicted);
  if (shown.iteration || !shown.plan.matrices.empty())
    out.title("Predicted times").table("", rows).note(times_note(shown));
  out.add(basis);
  return out;
}

Document phases_view(const Plan& plan) {
  Document out;
  if (plan.period <= 1) return out;
  Listing phases;
  for (const PhaseOutlook& o : phase_outlook(plan))
    phases
        .add({{"phases", "<phases", o.phases},
              {"predicted_mean_seconds", ">mean step",
               as_seconds(o.mean_seconds)},
              {"predicted_worst_seconds", ">worst step",
               as_seconds(o.worst_seconds)},
              {"", ">", o.phases == plan.phases ? "chosen" : ""}})
        .set("mean_step", o.mean_step)
        .set("worst_step", o.worst_step);
  out.title(cat("Refresh every ", plan.period,
                " steps: predicted transform of the slowest rank"));
  return out.table("phase_outlook", phases)
      .line(
          "Spreading refreshes lowers the worst step; with fewer matrices per "
          "phase than ranks it costs mean time.");
}

namespace {

void write_ranks(JsonWriter& out, const ReportPlan& shown) {
  out.begin_array();
  for (const RankCost& rank : shown.ranks) {
    out.begin_object().field("num_matrices", rank.num_matrices);
    out.field("elements", rank.elements);
    out.field("load", period_load(shown.plan, rank));
    out.field("predicted_transform_seconds", rank.transform_seconds_mean);
    out.field("predicted_element_wise_seconds", rank.element_wise_seconds);
    out.field("predicted_step_seconds", rank.step_seconds);
    memory_value(rank.memory).write(out.member("memory"));
    wire_value(rank).write(out.member("bytes"));
    out.end_object();
  }
  out.end_array();
}

}  // namespace

Document plan_view(const ReportPlan& shown, bool complete) {
  const Plan& plan = shown.plan;
  const PlanSummary& s = plan.summary;
  Document out;
  out.set("report", "plan").add(request_view(shown)).add(routing_view(plan));
  out.add(balance_view(shown)).add(loads_view(shown)).add(zero_view(shown));
  out.add(memory_view(shown))
      .add(wire_view(shown.ranks))
      .add(times_view(shown));
  out.add(phases_view(plan)).set("makespan", s.makespan.value());
  out.set("bound", s.bound.value()).set("mean", s.mean);
  if (may_have_teams(plan)) out.set("team_bound", s.team_bound.value());
  out.set("bytes_per_rank_max", s.bytes_per_rank_max.value());
  out.set("memory_per_rank_max", s.memory_per_rank_max.value());
  out.set("memory_per_rank_mean", s.memory_per_rank_mean);
  if (complete)
    out.set("ranks", [&](JsonWriter& to) { write_ranks(to, shown); });
  if (complete && shown.plan_seconds > 0)
    out.set("plan_seconds", shown.plan_seconds);
  return out.add(plan_figures(shown));
}

std::string plan_html(const ReportPlan& shown) {
  return make_page(to_json(plan_view(shown, false), 0),
                   {"tensors.js", "plan_drawings.js", "plan.js"});
}

}  // namespace canzona::report
