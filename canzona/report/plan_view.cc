#include "canzona/report/plan_view.h"

#include <fmt/format.h>

#include "canzona/base/text.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/report/models_view.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

constexpr size_t kLabel = 10;

std::string model_line(const Plan& plan) {
  double elements = 0;
  for (const Tensor& tensor : plan.model.tensors)
    elements += static_cast<double>(tensor.elements());
  return fmt::format(
      "{}, {}, split {}: {} parameters, {}, {}", printable(plan.model.name),
      plan.model.fused ? "fused" : "separate", to_string(plan.options.splits),
      human_count(elements), counted(std::ssize(plan.model.tensors), "tensor"),
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

std::vector<std::string> ratio_row(const std::string& name,
                                   const AxisBalance& axis, const Ink& ink) {
  std::vector<std::string> cells{name};
  for (const double ratio :
       {axis.memory_max_over_mean, axis.shard_flops_max_over_mean,
        axis.cost_max_over_mean})
    cells.push_back(ink(tone_of_ratio(ratio), ratio_text(ratio)));
  return cells;
}

// Says what the memory figures include, and what they are compared with.
std::string terms_text(const ReportPlan& shown, const Ink& ink) {
  if (!shown.terms) return "";
  const auto line = [&](const std::string& text) {
    return "  " + ink(Tone::kDim, wrap(text, kPageWidth - 2, 2)) + "\n";
  };
  const int64_t cap = shown.terms->cap_bytes;
  const int64_t most =
      fullest_memory(shown.ranks).total().value() + shown.terms->activations;
  std::string out = line("activations: " +
                         describe_activations(*shown.terms, shown.plan.mesh));
  if (shown.terms->gradients != DType::kFp32)
    out += line(fmt::format("gradients: {} at rest, sums in fp32",
                            to_string(shown.terms->gradients)));
  if (cap > 0)
    out += line(fmt::format("the largest total, {}, is within the cap of {}",
                            human_bytes(most), human_bytes(cap)));
  return out;
}

// Shows the bound for whole owners, and for teams where they are allowed.
std::string bounds_line(const Balance& b) {
  if (!(b.team_bound_over_mean > 0))
    return ratio_text(b.bound_over_mean) + " × mean";
  return fmt::format("{} × mean with teams, {} × with whole owners",
                     ratio_text(b.team_bound_over_mean),
                     ratio_text(b.bound_over_mean));
}

std::string makespan_line(const Balance& b, const Ink& ink) {
  return fmt::format("  makespan {} × bound, {} × mean · bound {} · {} idle\n",
                     ink(tone_of_ratio(b.makespan_over_bound),
                         ratio_text(b.makespan_over_bound)),
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

std::string request_text(const ReportPlan& shown, const Ink& ink) {
  const Plan& plan = shown.plan;
  std::string out = ink(Tone::kBold, "Plan") + "\n";
  const auto line = [&](std::string_view name, std::string_view text) {
    out += labelled(ink, name, text, kLabel);
  };
  line("model", model_line(plan));
  line("mesh", mesh_line(plan));
  line("rule", rule_text(plan));
  line("strategy", strategy_line(plan.options));
  if (may_have_teams(plan)) line("teams", describe_teams(plan));
  line("buckets", buckets_line(plan));
  line("cost", cost_source_text(plan.cost_basis));
  line("links", links_text(plan.options));
  line("digest", plan.digest);
  return out;
}

std::string plan_routing_text(const Plan& plan, const Ink& ink) {
  return title(ink, "Routing") +
         routing_text(group_tensors(plan.model, plan.matrices), plan.rule, ink);
}

std::string balance_text(const ReportPlan& shown, const Ink& ink) {
  if (shown.plan.matrices.empty())
    return title(ink, "Balance") +
           "  nothing needs a whole matrix: no owners, no exchange\n";
  const Balance& b = shown.balance;
  Table table("<>>>");
  table.header({"largest / mean", "memory", "shard flops", "cost"});
  table.row(ratio_row("over dp", b.dp, ink));
  table.row(ratio_row("over tp, home 0", b.tp, ink));
  table.row(ratio_row("over tp, worst home", b.tp_worst, ink));
  return title(ink, "Balance") + table.text(ink) +
         fmt::format(
             "  worst bucket {} × its even share of elements\n",
             b.bucket_bytes_max_over_even > kUnevenBucket
                 ? ink(Tone::kPoor, ratio_text(b.bucket_bytes_max_over_even))
                 : ratio_text(b.bucket_bytes_max_over_even)) +
         makespan_line(b, ink);
}

std::string loads_text(const ReportPlan& shown, const Ink& ink) {
  const Plan& plan = shown.plan;
  const std::vector<double> loads = period_loads(plan, shown.ranks);
  const Spread spread = spread_of(loads);
  if (spread.max <= 0) return "";
  const double per_step = 1.0 / plan.period;
  std::string out = title(ink, "Load per rank");
  out += load_picture({.loads = loads,
                       .mean = spread.mean,
                       .row_unit = plan.parts.front().grid.tp},
                      ink);
  return out + fmt::format(
                   "  mean {} per step · smallest {} × mean · largest {} × "
                   "mean (rank {})\n",
                   cost_text(plan.cost_basis, spread.mean * per_step),
                   ratio_text(spread.min / spread.mean),
                   ratio_text(spread.max_over_mean()), spread.largest);
}

std::string memory_text(const ReportPlan& shown, const Ink& ink) {
  Table table("<>>>");
  table.header({"kind", "largest", "mean", "largest / mean"});
  const auto row = [&](const char* name, const Spread& s) {
    table.row({name, bytes_text(s.max), bytes_text(s.mean),
               s.mean > 0 ? ratio_text(s.max_over_mean()) : "-"});
  };
  for (const MemoryKind& kind : memory_kinds(shown.plan)) {
    row(kind.name, spread_over(shown.ranks, [&](const RankCost& rank) {
          return (rank.memory.*kind.field).value();
        }));
  }
  const int64_t activations = shown.terms ? shown.terms->activations : 0;
  if (shown.terms)
    row("activations", spread_over(shown.ranks, [&](const RankCost& /*alike*/) {
          return activations;
        }));
  row("total", spread_over(shown.ranks, [&](const RankCost& rank) {
        return rank.memory.total().value() + activations;
      }));
  row("staging of sums, in addition",
      spread_over(shown.ranks, [](const RankCost& rank) {
        return rank.memory.staging.value();
      }));
  return title(ink, "Memory per rank") + table.text(ink) +
         terms_text(shown, ink);
}

std::string wire_text(const ReportPlan& shown, const Ink& ink) {
  Table table("<>>>>");
  table.header({"collective", "sent, largest", "sent, mean", "inside nodes",
                "between nodes"});
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto at = static_cast<size_t>(c);
    const auto figure = [&](auto part) {
      return spread_over(shown.ranks, [&](const RankCost& rank) {
        return part(rank.wire[at]);
      });
    };
    const Spread sent = figure([](const WireBytes& w) { return w.sent(); });
    if (sent.max <= 0) continue;
    const Spread intra =
        figure([](const WireBytes& w) { return w.sent_intra; });
    const Spread inter =
        figure([](const WireBytes& w) { return w.sent_inter; });
    table.row({std::string(to_string(static_cast<Collective>(c))),
               bytes_text(sent.max), bytes_text(sent.mean),
               bytes_text(intra.max), bytes_text(inter.max)});
  }
  if (table.empty())
    return title(ink, "Bytes per rank and step") + "  none: nothing moves\n";
  return title(ink, "Bytes per rank and step") + table.text(ink);
}

namespace {

// Adds the iteration, of which the step is a small part where collectives are
// slow.
void add_iteration(const ShownIteration& iteration, Table& table) {
  const IterationTime& time = iteration.time;
  const auto row = [&](const char* name, double seconds) {
    if (seconds > 0) table.row({name, human_seconds(seconds)});
  };
  row("predicted iteration", time.seconds);
  row("  forward and backward", time.compute_seconds);
  row("  waiting for collectives", time.waited());
  row("  bubble of the pipeline", time.bubble_seconds);
  row("  optimizer step", time.step_seconds);
}

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

std::string times_text(const ReportPlan& shown, const Ink& ink) {
  Table table("<>");
  if (shown.iteration) add_iteration(*shown.iteration, table);
  const PlanSummary& s = shown.plan.summary;
  const Spread own = spread_over(shown.ranks, [](const RankCost& rank) {
    return rank.transform_seconds_mean;
  });
  if (!shown.plan.matrices.empty()) {
    table.row({"predicted step alone, slowest rank",
               human_seconds(s.step_seconds_mean)});
    if (shown.plan.period > 1)
      table.row({"predicted worst step of a period",
                 human_seconds(s.step_seconds_worst)});
    if (shown.plan.cost_basis.element_wise_bytes_per_second > 0)
      table.row(
          {"element-wise part of it, slowest rank",
           human_seconds(spread_over(shown.ranks, [](const RankCost& rank) {
                           return rank.element_wise_seconds;
                         }).max)});
    table.row({"predicted transform, slowest rank", human_seconds(own.max)});
    table.row({"predicted transform, mean rank", human_seconds(own.mean)});
  }
  if (table.empty()) return "";
  return title(ink, "Predicted times") + table.text(ink) +
         ink(Tone::kDim, "  " + wrap(times_note(shown), kPageWidth - 2, 2)) +
         "\n";
}

std::string phases_text(const Plan& plan, const Ink& ink) {
  if (plan.period <= 1) return "";
  Table table("<>>>");
  table.header({"phases", "mean step", "worst step", ""});
  for (const PhaseOutlook& o : phase_outlook(plan)) {
    table.row({fmt::format("{}", o.phases), human_seconds(o.mean_seconds),
               human_seconds(o.worst_seconds),
               o.phases == plan.phases ? "chosen" : ""});
  }
  return title(ink,
               fmt::format("Refresh every {} steps: predicted transform of "
                           "the slowest rank",
                           plan.period)) +
         table.text(ink) +
         "  Spreading refreshes lowers the worst step; with fewer matrices per "
         "phase than ranks it\n  costs mean time.\n";
}

std::string plan_text(const ReportPlan& shown, const Ink& ink) {
  return request_text(shown, ink) + plan_routing_text(shown.plan, ink) +
         balance_text(shown, ink) + loads_text(shown, ink) +
         zero_text(shown, ink) + memory_text(shown, ink) +
         wire_text(shown, ink) + times_text(shown, ink) +
         phases_text(shown.plan, ink);
}

namespace {

void write_model(JsonWriter& out, const Model& model) {
  double elements = 0;
  for (const Tensor& tensor : model.tensors)
    elements += static_cast<double>(tensor.elements());
  out.field("model", model.name).field("fused", model.fused);
  out.field("num_tensors", model.tensors.size());
  out.field("elements", elements);
}

void write_rule(JsonWriter& out, const Plan& plan) {
  out.member("rule").begin_object().field("name", plan.rule);
  out.field("text", rule_text(plan));
  out.member("options").begin_object();
  for (const auto& [name, value] : plan.rule_options) out.field(name, value);
  out.end_object();
  out.field("period", plan.period).field("phases", plan.phases).end_object();
}

void write_options(JsonWriter& out, const PlanOptions& options) {
  out.member("options").begin_object();
  out.field("micro_groups", options.micro_groups);
  out.field("split", to_string(options.splits));
  out.field("bucket_elements", options.bucket_elements);
  if (options.alpha) out.field("alpha", *options.alpha);
  if (options.weight) out.field("weight", to_string(*options.weight));
  out.field("capacity_bytes", options.capacity_bytes);
  out.field("memory_cap_bytes", options.memory_cap_bytes);
  out.field("ranks_per_node", options.ranks_per_node);
  out.field("parameters", to_string(options.parameters));
  if (options.teams != kTeamsOff) out.field("teams", teams_text(options.teams));
  out.end_object();
}

void write_basis(JsonWriter& out, const Plan& plan) {
  out.member("cost").begin_object();
  out.field("source", plan.cost_basis.source);
  out.field("nominal", is_nominal(plan.cost_basis));
  out.field("seconds_per_tick", plan.cost_basis.seconds_per_tick);
  if (plan.cost_basis.element_wise_bytes_per_second > 0)
    out.field("element_wise_bytes_per_second",
              plan.cost_basis.element_wise_bytes_per_second);
  out.end_object();
  const Links& links = plan.options.links;
  out.member("links").begin_object().field("nominal", links.nominal);
  out.field("intra_bytes_per_second", links.intra_bytes_per_second);
  out.field("inter_bytes_per_second", links.inter_bytes_per_second);
  out.field("latency_seconds", links.latency_seconds);
  if (links.intra_latency_seconds)
    out.field("intra_latency_seconds", *links.intra_latency_seconds);
  out.end_object();
}

void write_summary(JsonWriter& out, const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  const PlanSummary& s = plan.summary;
  out.field("makespan", s.makespan.value()).field("bound", s.bound.value());
  if (may_have_teams(plan)) out.field("team_bound", s.team_bound.value());
  out.field("mean", s.mean);
  out.field("bytes_per_rank_max", s.bytes_per_rank_max.value());
  out.field("memory_per_rank_max", s.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", s.memory_per_rank_mean);
  out.member("predicted").begin_object();
  out.field("step_seconds_mean", s.step_seconds_mean);
  out.field("step_seconds_worst", s.step_seconds_worst);
  if (shown.iteration)
    write_iteration(out.member("iteration"), *shown.iteration);
  out.end_object();
}

void write_phases(JsonWriter& out, const Plan& plan) {
  if (plan.period <= 1) return;
  out.member("phase_outlook").begin_array();
  for (const PhaseOutlook& outlook : phase_outlook(plan)) {
    out.begin_object().field("phases", outlook.phases);
    out.field("mean_step", outlook.mean_step);
    out.field("worst_step", outlook.worst_step);
    out.field("predicted_mean_seconds", outlook.mean_seconds);
    out.field("predicted_worst_seconds", outlook.worst_seconds).end_object();
  }
  out.end_array();
}

void write_ranks(JsonWriter& out, const ReportPlan& shown) {
  out.member("ranks").begin_array();
  for (const RankCost& rank : shown.ranks) {
    out.begin_object().field("num_matrices", rank.num_matrices);
    out.field("elements", rank.elements);
    out.field("load", period_load(shown.plan, rank));
    out.field("predicted_transform_seconds", rank.transform_seconds_mean);
    out.field("predicted_element_wise_seconds", rank.element_wise_seconds);
    out.field("predicted_step_seconds", rank.step_seconds);
    out.member("memory");
    write_memory(out, rank.memory);
    out.member("bytes");
    write_wire(out, rank);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

void write_plan_view(JsonWriter& out, const ReportPlan& shown, bool complete) {
  const Plan& plan = shown.plan;
  out.begin_object().field("report", "plan");
  write_model(out, plan.model);
  out.member("mesh");
  write_mesh(out, plan.mesh);
  out.field("world", plan.mesh.world());
  write_rule(out, plan);
  out.field("strategy", plan.options.strategy);
  write_options(out, plan.options);
  write_basis(out, plan);
  out.field("num_matrices", plan.matrices.size());
  out.field("num_buckets", num_buckets(plan));
  out.field("digest", plan.digest);
  out.member("routing");
  write_routing(out, group_tensors(plan.model, plan.matrices), plan.rule);
  write_balance_members(out, shown.balance);
  if (may_have_teams(plan)) write_teams_by_size(out.member("teams"), plan);
  write_summary(out, shown);
  if (shown.terms) {
    write_counted_memory(out.member("counted_memory"), shown);
    out.field("activations_text",
              describe_activations(*shown.terms, plan.mesh));
  }
  write_zero(out, shown);
  write_phases(out, plan);
  if (complete) write_ranks(out, shown);
  if (complete && shown.plan_seconds > 0)
    out.field("plan_seconds", shown.plan_seconds);
  write_plan_figures(out, shown);
  out.end_object();
}

std::string plan_view_json(const ReportPlan& shown) {
  JsonWriter out(2);
  write_plan_view(out, shown, true);
  return out.take() + "\n";
}

std::string plan_html(const ReportPlan& shown) {
  JsonWriter out;
  write_plan_view(out, shown, false);
  return make_page(out.text(), {"tensors.js", "plan_drawings.js", "plan.js"});
}

}  // namespace canzona
