#include "canzona/report/compare_view.h"

#include <fmt/format.h>
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 50;
// The longest bar, as a multiple of the shortest: without a limit, a strategy
// that repeats all work on every rank would make the others look equal.
constexpr double kLongestBar = 4;

std::string toned(const Ink& ink, double ratio) {
  return ink(tone_of_ratio(ratio), ratio_text(ratio));
}

// Says what the memory figures include, and what they are compared with.
std::string terms_lines(const Comparison& comparison, const Ink& ink) {
  const ReportPlan& shown = *comparison.first();
  if (!shown.terms) return "";
  std::string out = ink(Tone::kDim, "  activations: ") +
                    wrap(describe_activations(*shown.terms, shown.plan.mesh),
                         kPageWidth - 15, 4) +
                    "\n" + ink(Tone::kDim, "  gradients: ") +
                    std::string(to_string(shown.terms->gradients)) +
                    " at rest\n";
  if (shown.terms->cap_bytes > 0)
    out += ink(Tone::kDim, "  memory cap: ") +
           human_bytes(shown.terms->cap_bytes) + " per rank\n";
  return out;
}

std::string heading(const Comparison& comparison, const Ink& ink) {
  const Plan& plan = comparison.first()->plan;
  return ink(Tone::kBold, "Strategies") +
         fmt::format(" for {} ({}), {} on {}: {}, {}\n",
                     printable(plan.model.name),
                     plan.model.fused ? "fused" : "separate", plan.rule,
                     to_string(plan.mesh), counted(plan.mesh.world(), "rank"),
                     counted(std::ssize(plan.matrices), "matrix")) +
         ink(Tone::kDim, "  cost: ") + cost_source_text(plan.cost_basis) +
         "\n" + ink(Tone::kDim, "  links: ") + links_text(plan.options) + "\n" +
         terms_lines(comparison, ink);
}

// Returns the memory of the plan under its terms.
Spread memory_of(const ReportPlan& shown) {
  return spread_over(shown.ranks, [](const RankCost& rank) {
    return rank.memory.total().value();
  });
}

std::string counted_table(const Comparison& comparison, const Ink& ink) {
  if (!comparison.first()->terms) return "";
  std::vector<std::string> head = {"strategy"};
  for (const MemoryKind& kind : memory_kinds(false)) head.push_back(kind.name);
  head.insert(head.end(), {"activations", "total"});
  Table table("<" + std::string(head.size() - 1, '>'));
  table.header(head);
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const RankMemory& memory = fullest_memory(strategy.shown->ranks);
    std::vector<std::string> cells = {strategy.name};
    for (const MemoryKind& kind : memory_kinds(false))
      cells.push_back(human_bytes((memory.*kind.field).value()));
    cells.push_back(human_bytes(strategy.shown->terms->activations));
    cells.push_back(human_bytes(memory.total().value() +
                                strategy.shown->terms->activations));
    table.row(cells);
  }
  return title(ink, "Memory of the fullest rank") + table.text(ink);
}

std::string balance_table(const Comparison& comparison, const Ink& ink) {
  Table table("<>>>>>>>");
  table.header({"strategy", "dp memory", "dp shard flops", "dp cost",
                "worst bucket", "tp memory", "tp shard flops", "tp cost"});
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const Balance& b = strategy.shown->balance;
    table.row({strategy.name, toned(ink, b.dp.memory_max_over_mean),
               toned(ink, b.dp.shard_flops_max_over_mean),
               toned(ink, b.dp.cost_max_over_mean),
               toned(ink, b.bucket_bytes_max_over_even),
               toned(ink, b.tp_worst.memory_max_over_mean),
               toned(ink, b.tp_worst.shard_flops_max_over_mean),
               toned(ink, b.tp_worst.cost_max_over_mean)});
  }
  return title(ink,
               "Balance: largest / mean over dp, and over tp in the worst "
               "home") +
         table.text(ink);
}

std::string cost_table_text(const Comparison& comparison, const Ink& ink) {
  Table table("<>>>>>>>?");
  table.header({"strategy", "over bound", "idle", "sent", "memory",
                "mean memory", "step alone", "iteration", "planned in"});
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const PlanSummary& s = strategy.shown->plan.summary;
    const Balance& b = strategy.shown->balance;
    const Spread memory = memory_of(*strategy.shown);
    table.row({strategy.name, toned(ink, b.makespan_over_bound),
               grouped(b.idle_ranks), human_bytes(s.bytes_per_rank_max.value()),
               bytes_text(memory.max), bytes_text(memory.mean),
               human_seconds(s.step_seconds_mean),
               strategy.shown->iteration
                   ? human_seconds(strategy.shown->iteration->time.seconds)
                   : "-",
               human_seconds(strategy.shown->plan_seconds)});
  }
  return title(ink,
               "Worst rank: makespan over the lower bound, bytes, memory "
               "without activations, predicted times") +
         table.text(ink);
}

std::string teams_lines(const Comparison& comparison, const Ink& ink) {
  if (!may_have_teams(comparison.first()->plan)) return "";
  Table table("<>~");
  table.header({"strategy", "bound / mean", "teams"});
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown)
      table.row({strategy.name,
                 ratio_text(strategy.shown->balance.team_bound_over_mean),
                 describe_teams(strategy.shown->plan)});
  return title(ink, "Teams, and the lower bound with them") + table.text(ink);
}

struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};

std::string bars_text(const std::vector<Bar>& bars, const Ink& ink) {
  double least = 0, most = 0;
  for (const Bar& b : bars) {
    least = least > 0 ? std::min(least, b.value) : b.value;
    most = std::max(most, b.value);
  }
  const double full = std::min(most, least * kLongestBar);
  Table table("<><");
  for (const Bar& b : bars) {
    const double ratio = least > 0 ? b.value / least : 1;
    table.row({b.name, b.text,
               ink(tone_of_ratio(ratio), bar(b.value, full, kBarWidth))});
  }
  return table.text(ink);
}

template <class Figure, class Show>
std::string bars_of(const Comparison& comparison, const Figure& figure,
                    const Show& show, const Ink& ink) {
  std::vector<Bar> bars;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const double value = figure(*strategy.shown);
    bars.push_back({strategy.name, value, show(value)});
  }
  return bars_text(bars, ink);
}

std::string pictures(const Comparison& comparison, const Ink& ink) {
  const auto transform = [](const ReportPlan& shown) {
    const Plan& plan = shown.plan;
    return static_cast<double>(plan.summary.makespan.value()) / plan.period *
           plan.cost_basis.seconds_per_tick;
  };
  const auto step = [](const ReportPlan& shown) {
    return shown.plan.summary.step_seconds_mean;
  };
  const auto memory = [](const ReportPlan& shown) {
    return memory_of(shown).max;
  };
  const auto iteration = [](const ReportPlan& shown) {
    return shown.iteration->time.seconds;
  };
  std::string whole;
  if (comparison.first()->iteration)
    whole = title(ink, "Predicted iteration, collectives included") +
            bars_of(comparison, iteration, human_seconds, ink);
  return title(ink, "Predicted transform, slowest rank (makespan)") +
         bars_of(comparison, transform, human_seconds, ink) +
         title(ink,
               "Predicted step alone: exchange and transforms, without sums "
               "and new parameters") +
         bars_of(comparison, step, human_seconds, ink) + whole +
         title(ink, "Memory without activations, largest rank") +
         bars_of(comparison, memory, bytes_text, ink);
}

std::string refusals(const Comparison& comparison, const Ink& ink) {
  Refusals refused;
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (!strategy.shown) refused.emplace_back(strategy.name, strategy.error);
  return refusals_text(refused, "Strategies that cannot plan this", ink);
}

}  // namespace

const ReportPlan* Comparison::first() const {
  for (const ComparedStrategy& strategy : strategies)
    if (strategy.shown) return &*strategy.shown;
  return nullptr;
}

std::string compare_text(const Comparison& comparison, const Ink& ink) {
  if (comparison.first() == nullptr) return refusals(comparison, ink);
  return heading(comparison, ink) + balance_table(comparison, ink) +
         cost_table_text(comparison, ink) + teams_lines(comparison, ink) +
         counted_table(comparison, ink) + pictures(comparison, ink) +
         refusals(comparison, ink);
}

namespace {

void write_strategy(JsonWriter& out, const ComparedStrategy& strategy,
                    bool complete) {
  out.begin_object().field("name", strategy.name);
  if (!strategy.shown) {
    out.field("error", strategy.error).end_object();
    return;
  }
  const ReportPlan& shown = *strategy.shown;
  const PlanSummary& summary = shown.plan.summary;
  out.field("num_buckets", num_buckets(shown.plan));
  write_balance_members(out, shown.balance);
  if (may_have_teams(shown.plan))
    write_teams_by_size(out.member("teams"), shown.plan);
  out.field("bytes_per_rank_max", summary.bytes_per_rank_max.value());
  out.field("memory_per_rank_max", summary.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", summary.memory_per_rank_mean);
  if (shown.terms) write_counted_memory(out.member("counted_memory"), shown);
  out.field("predicted_step_seconds", summary.step_seconds_mean);
  if (shown.iteration)
    write_iteration(out.member("predicted_iteration"), *shown.iteration);
  if (complete) out.field("plan_seconds", shown.plan_seconds);
  out.field("digest", shown.plan.digest);
  write_spread(out, shown);
  out.end_object();
}

// Returns the strategy of this name if it has a plan, else nullptr.
const ComparedStrategy* find_planned(const Comparison& comparison,
                                     std::string_view name) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name == name) return &strategy;
  return nullptr;
}

// Writes the two plans that are shown in detail.
void write_pair(JsonWriter& out, const Comparison& comparison) {
  const ComparedStrategy* before = find_planned(comparison, "start_offset");
  const ComparedStrategy* after = find_planned(comparison, "balanced");
  const bool no_after = after == nullptr;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    if (before == nullptr) before = &strategy;
    if (no_after) after = &strategy;
  }
  out.field("before", before->name).field("after", after->name);
  if (before != after)
    write_buckets(out.member("buckets_before"), *before->shown);
  write_plan_view(out.member("plan"), *after->shown, false);
}

// `balanced` joins a small tail bucket to its neighbour, so the number of
// buckets that describes the input is that of another strategy.
const ReportPlan& typical(const Comparison& comparison) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name != "balanced") return *strategy.shown;
  return *comparison.first();
}

void write_comparison(JsonWriter& out, const Comparison& comparison,
                      bool complete) {
  out.begin_object().field("report", "compare");
  out.field("model", comparison.model).member("mesh");
  write_mesh(out, comparison.mesh);
  out.field("world", comparison.mesh.world());
  if (comparison.first() != nullptr) {
    const Plan& plan = typical(comparison).plan;
    out.field("num_matrices", plan.matrices.size());
    out.field("num_buckets", num_buckets(plan));
    out.field("rule", plan.rule).field("fused", plan.model.fused);
    out.field("cost_source", plan.cost_basis.source);
    out.field("nominal_links", plan.options.links.nominal);
  }
  out.member("strategies").begin_array();
  for (const ComparedStrategy& strategy : comparison.strategies)
    write_strategy(out, strategy, complete);
  out.end_array();
  if (comparison.first() != nullptr) write_pair(out, comparison);
  out.end_object();
}

}  // namespace

std::string compare_json(const Comparison& comparison) {
  JsonWriter out(2);
  write_comparison(out, comparison, true);
  return out.take() + "\n";
}

std::string compare_html(const Comparison& comparison) {
  if (comparison.first() == nullptr)
    throw UsageError("html report: there is no plan to show");
  JsonWriter out;
  write_comparison(out, comparison, false);
  return make_page(out.text(), {"tensors.js", "plan_drawings.js", "plan.js"});
}

}  // namespace canzona
