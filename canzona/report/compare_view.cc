#include "canzona/report/compare_view.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/team_view.h"

namespace canzona::report {
namespace {

constexpr size_t kBarWidth = 50;
// The longest bar, as a multiple of the shortest: without a limit, a strategy
// that repeats all work on every rank would make the others look equal.
constexpr double kLongestBar = 4;

void add_heading(const Comparison& comparison, Document& out) {
  const ReportPlan& shown = *comparison.first();
  const Plan& plan = shown.plan;
  out.heading("Strategies", cat(" for ", printable(plan.model.name), " (",
                                plan.model.fused ? "fused" : "separate", "), ",
                                plan.rule, " on ", to_string(plan.mesh), ": ",
                                counted(plan.mesh.world(), "rank"), ", ",
                                counted(std::ssize(plan.matrices), "matrix")));
  const auto line = [&](const char* name, const std::string& text) {
    out.text(cat("  ", toned(Tone::kDim, name), ": ",
                 wrap(text, kPageWidth - 15, 4), "\n"));
  };
  line("cost", cost_source_text(plan.cost_basis));
  line("links", links_text(plan.options));
  // What the memory figures include, and what they are compared with.
  if (!shown.terms) return;
  line("activations", describe_activations(*shown.terms, plan.mesh));
  line("gradients", cat(to_string(shown.terms->gradients), " at rest"));
  if (shown.terms->cap_bytes > 0)
    line("memory cap", human_bytes(shown.terms->cap_bytes) + " per rank");
}

// Returns the memory of the plan under its terms.
Spread memory_of(const ReportPlan& shown) {
  return spread_over(shown.ranks, [](const RankCost& rank) {
    return rank.memory.total().value();
  });
}

Field ratio_field(const char* heading, double ratio) {
  return {"", heading, as_ratio(ratio)};
}

void add_counted(const Comparison& comparison, Document& out) {
  if (!comparison.first()->terms) return;
  Listing rows;
  for (const auto& [name, shown, error] : comparison.strategies) {
    if (!shown) continue;
    const RankMemory& memory = fullest_memory(shown->ranks);
    const int64_t activations = shown->terms->activations;
    Row& row = rows.add({{"", "<strategy", name}});
    for (const MemoryKind& kind : memory_kinds(false))
      row.add(
          {"", cat('>', kind.name), as_bytes((memory.*kind.field).value())});
    row.add({"", ">activations", as_bytes(activations)});
    row.add({"", ">total", as_bytes(memory.total().value() + activations)});
  }
  out.title("Memory of the fullest rank").table("", rows);
}

void add_balance(const Comparison& comparison, Document& out) {
  Listing rows;
  for (const auto& [name, shown, error] : comparison.strategies) {
    if (!shown) continue;
    const Balance& b = shown->balance;
    rows.add(
        {{"", "<strategy", name},
         ratio_field(">dp memory", b.dp.memory_max_over_mean),
         ratio_field(">dp shard flops", b.dp.shard_flops_max_over_mean),
         ratio_field(">dp cost", b.dp.cost_max_over_mean),
         ratio_field(">worst bucket", b.bucket_bytes_max_over_even),
         ratio_field(">tp memory", b.tp_worst.memory_max_over_mean),
         ratio_field(">tp shard flops", b.tp_worst.shard_flops_max_over_mean),
         ratio_field(">tp cost", b.tp_worst.cost_max_over_mean)});
  }
  out.title("Balance: largest / mean over dp, and over tp in the worst home")
      .table("", rows);
}

void add_costs(const Comparison& comparison, Document& out) {
  Listing rows;
  for (const auto& [name, shown, error] : comparison.strategies) {
    if (!shown) continue;
    const PlanSummary& s = shown->plan.summary;
    const Spread memory = memory_of(*shown);
    rows.add({{"", "<strategy", name},
              ratio_field(">over bound", shown->balance.makespan_over_bound),
              {"", ">idle", as_count(shown->balance.idle_ranks)},
              {"", ">sent", as_bytes(s.bytes_per_rank_max.value())},
              {"", ">memory", as_bytes(memory.max)},
              {"", ">mean memory", as_bytes(memory.mean)},
              {"", ">step alone", as_seconds(s.step_seconds_mean)},
              {"", ">iteration",
               shown->iteration ? human_seconds(shown->iteration->time.seconds)
                                : "-"},
              {"", "?planned in", as_seconds(shown->plan_seconds)}});
  }
  out.title(
         "Worst rank: makespan over the lower bound, bytes, memory without "
         "activations, predicted times")
      .table("", rows);
}

void add_teams(const Comparison& comparison, Document& out) {
  if (!may_have_teams(comparison.first()->plan)) return;
  Listing rows;
  for (const auto& [name, shown, error] : comparison.strategies)
    if (shown)
      rows.add({{"", "<strategy", name},
                {"", ">bound / mean",
                 ratio_text(shown->balance.team_bound_over_mean)},
                {"", "~teams", describe_teams(shown->plan)}});
  out.title("Teams, and the lower bound with them").table("", rows);
}

// Bars of a figure of all plans.
template <class Figure>
void add_bars(const Comparison& comparison, const char* title,
              const Figure& figure, Document& out) {
  double least = 0, most = 0;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const double value = figure(*strategy.shown).first;
    least = least > 0 ? std::min(least, value) : value;
    most = std::max(most, value);
  }
  const double full = std::min(most, least * kLongestBar);
  Listing bars;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const auto [value, text] = figure(*strategy.shown);
    const Tone tone = tone_of_ratio(least > 0 ? value / least : 1);
    bars.add({{"", "<", strategy.name},
              {"", ">", text},
              {"", "<", "", toned(tone, bar(value, full, kBarWidth))}});
  }
  out.title(title).table("", bars);
}

std::pair<double, std::string> with_text(double seconds) {
  return {seconds, human_seconds(seconds)};
}

void add_pictures(const Comparison& comparison, Document& out) {
  add_bars(
      comparison, "Predicted transform, slowest rank (makespan)",
      [](const ReportPlan& shown) {
        const Plan& plan = shown.plan;
        return with_text(static_cast<double>(plan.summary.makespan.value()) /
                         plan.period * plan.cost_basis.seconds_per_tick);
      },
      out);
  add_bars(
      comparison,
      "Predicted step alone: exchange and transforms, without sums and new "
      "parameters",
      [](const ReportPlan& shown) {
        return with_text(shown.plan.summary.step_seconds_mean);
      },
      out);
  if (comparison.first()->iteration)
    add_bars(
        comparison, "Predicted iteration, collectives included",
        [](const ReportPlan& shown) {
          return with_text(shown.iteration->time.seconds);
        },
        out);
  add_bars(
      comparison, "Memory without activations, largest rank",
      [](const ReportPlan& shown) {
        const double bytes = memory_of(shown).max;
        return std::pair(bytes, bytes_text(bytes));
      },
      out);
}

void add_refusals(const Comparison& comparison, Document& out) {
  Refusals refused;
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (!strategy.shown) refused.emplace_back(strategy.name, strategy.error);
  out.refusals("Strategies that cannot plan this", refused);
}

}  // namespace

const ReportPlan* Comparison::first() const {
  for (const ComparedStrategy& strategy : strategies)
    if (strategy.shown) return &*strategy.shown;
  return nullptr;
}

namespace {

Value strategy_value(const ComparedStrategy& strategy, bool complete) {
  Document out;
  out.set("name", strategy.name);
  if (!strategy.shown) return out.set("error", strategy.error).value();
  const ReportPlan& shown = *strategy.shown;
  const PlanSummary& summary = shown.plan.summary;
  out.set("num_buckets", num_buckets(shown.plan));
  out.add(balance_members(shown.balance));
  if (may_have_teams(shown.plan)) out.set("teams", teams_value(shown.plan));
  out.set("bytes_per_rank_max", summary.bytes_per_rank_max.value());
  out.set("memory_per_rank_max", summary.memory_per_rank_max.value());
  out.set("memory_per_rank_mean", summary.memory_per_rank_mean);
  if (shown.terms) out.set("counted_memory", counted_memory(shown));
  out.set("predicted_step_seconds", summary.step_seconds_mean);
  if (shown.iteration)
    out.set("predicted_iteration", iteration_value(*shown.iteration));
  if (complete) out.set("plan_seconds", shown.plan_seconds);
  out.set("digest", shown.plan.digest);
  return out.add(spread_members(shown)).value();
}

// Returns the strategy of this name if it has a plan, else nullptr.
const ComparedStrategy* find_planned(const Comparison& comparison,
                                     std::string_view name) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name == name) return &strategy;
  return nullptr;
}

// The two plans that are shown in detail.
void add_pair(const Comparison& comparison, Document& out) {
  const ComparedStrategy* before = find_planned(comparison, "start_offset");
  const ComparedStrategy* after = find_planned(comparison, "balanced");
  const bool no_after = after == nullptr;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    if (before == nullptr) before = &strategy;
    if (no_after) after = &strategy;
  }
  out.set("before", before->name).set("after", after->name);
  if (before != after) out.set("buckets_before", buckets_value(*before->shown));
  out.set("plan", [after](JsonWriter& to) {
    plan_view(*after->shown, false).value().write(to);
  });
}

// `balanced` joins a small tail bucket to its neighbour, so the number of
// buckets that describes the input is that of another strategy.
const ReportPlan& typical(const Comparison& comparison) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name != "balanced") return *strategy.shown;
  return *comparison.first();
}

}  // namespace

Document compare_view(const Comparison& comparison, bool complete) {
  Document out;
  out.set("report", "compare").set("model", comparison.model);
  out.set("mesh", mesh_value(comparison.mesh));
  out.set("world", comparison.mesh.world());
  std::vector<Value> strategies;
  for (const ComparedStrategy& strategy : comparison.strategies)
    strategies.push_back(strategy_value(strategy, complete));
  out.set("strategies", strategies);
  if (comparison.first() != nullptr) {
    const Plan& plan = typical(comparison).plan;
    out.set("num_matrices", plan.matrices.size());
    out.set("num_buckets", num_buckets(plan)).set("rule", plan.rule);
    out.set("fused", plan.model.fused);
    out.set("cost_source", plan.cost_basis.source);
    out.set("nominal_links", plan.options.links.nominal);
    add_pair(comparison, out);
    add_heading(comparison, out);
    add_balance(comparison, out);
    add_costs(comparison, out);
    add_teams(comparison, out);
    add_counted(comparison, out);
    add_pictures(comparison, out);
  }
  if (const ReportPlan* shown = comparison.first(); shown && shown->iteration)
    add_basis(shown->iteration->inputs, shown->iteration->gaps, out);
  add_refusals(comparison, out);
  return out;
}

std::string compare_html(const Comparison& comparison) {
  if (comparison.first() == nullptr)
    throw UsageError("html report: there is no plan to show");
  return make_page(to_json(compare_view(comparison, false), 0),
                   {"tensors.js", "plan_drawings.js", "plan.js"});
}

}  // namespace canzona::report
