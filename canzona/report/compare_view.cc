#include "canzona/report/compare_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/terminal_bars.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 50;
// Bars end here, as a multiple of the shortest: a strategy that repeats all
// work on every rank would leave the others no room to differ.
constexpr double kLongestBar = 4;

std::string toned(const Ink& ink, double ratio) {
  return ink(tone_of_ratio(ratio), ratio_text(ratio));
}

std::string heading(const Comparison& comparison, const Ink& ink) {
  const Plan& plan = comparison.first()->plan;
  return ink(Tone::kBold, "Strategies") +
         fmt::format(" for {} ({}), {} on {}: {} ranks, {} matrices\n",
                     printable(plan.model.name),
                     plan.model.fused ? "fused" : "separate", plan.rule,
                     to_string(plan.mesh), grouped(plan.mesh.world()),
                     grouped(std::ssize(plan.matrices))) +
         ink(Tone::kDim, "  cost: ") + cost_source_text(plan.cost_basis) +
         "\n" + ink(Tone::kDim, "  links: ") + links_text(plan.options) + "\n";
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
  Table table("<>>>>>>>");
  table.header({"strategy", "over bound", "idle", "sent", "memory",
                "mean memory", "predicted step", "planned in"});
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const PlanSummary& s = strategy.shown->plan.summary;
    const Balance& b = strategy.shown->balance;
    table.row({strategy.name, toned(ink, b.makespan_over_bound),
               grouped(b.idle_ranks), human_bytes(s.bytes_per_rank_max.value()),
               human_bytes(s.memory_per_rank_max.value()),
               human_bytes(static_cast<int64_t>(s.memory_per_rank_mean)),
               human_seconds(s.step_seconds_mean),
               human_seconds(strategy.shown->plan_seconds)});
  }
  return title(ink,
               "Worst rank: makespan over the lower bound, bytes, memory, "
               "time") +
         table.text(ink);
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
    const double value = figure(strategy.shown->plan);
    bars.push_back({strategy.name, value, show(value)});
  }
  return bars_text(bars, ink);
}

std::string pictures(const Comparison& comparison, const Ink& ink) {
  const auto transform = [](const Plan& plan) {
    return static_cast<double>(plan.summary.makespan.value()) / plan.period *
           plan.cost_basis.seconds_per_tick;
  };
  const auto step = [](const Plan& p) { return p.summary.step_seconds_mean; };
  const auto memory = [](const Plan& plan) {
    return static_cast<double>(plan.summary.memory_per_rank_max.value());
  };
  const auto bytes = [](double b) {
    return human_bytes(static_cast<int64_t>(b));
  };
  return title(ink, "Predicted transform, slowest rank (makespan)") +
         bars_of(comparison, transform, human_seconds, ink) +
         title(ink, "Predicted step with its exchange, slowest rank") +
         bars_of(comparison, step, human_seconds, ink) +
         title(ink, "Memory, largest rank") +
         bars_of(comparison, memory, bytes, ink);
}

std::string refusals(const Comparison& comparison, const Ink& ink) {
  std::string out;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (strategy.shown) continue;
    out += ink(Tone::kPoor, "  " + strategy.name) + ": " +
           wrap(printable(strategy.error), kPageWidth - 4, 4) + "\n";
  }
  return out.empty() ? out : title(ink, "Cannot plan this") + out;
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
         cost_table_text(comparison, ink) + pictures(comparison, ink) +
         refusals(comparison, ink);
}

}  // namespace canzona
