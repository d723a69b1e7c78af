// The answer of `canzona bench step` on the terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/bench/step_report.h"
#include "canzona/report/numbers.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/terminal_bars.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 50;
constexpr size_t kDigestLetters = 12;

std::vector<const StrategyBench*> ran(const StepReport& report) {
  std::vector<const StrategyBench*> out;
  for (const StrategyBench& s : report.bench.strategies)
    if (s.error.empty()) out.push_back(&s);
  return out;
}

std::string percent(double part) {
  return fmt::format("{} %", std::lround(100 * part));
}

std::string step_heading(const StepReport& report, const Ink& ink) {
  const StepBench& bench = report.bench;
  std::string out =
      ink(Tone::kBold, "Steps") +
      fmt::format(" of {} with {} on {}: {} ranks, {}\n",
                  printable(report.model), report.rule, to_string(report.mesh),
                  report.mesh.world(),
                  report.transport == "mpi" ? "processes of MPI" : "threads");
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kPageWidth - 2, 2) + "\n";
  };
  if (const std::string text = report.precision.text(); !text.empty())
    line("precision: " + text);
  line(fmt::format("{} gradients, {} steps, the first {} not timed",
                   to_string(report.trial.gradients), report.trial.steps,
                   report.trial.warmup));
  line(fmt::format("forward and backward sleep {}{}",
                   human_seconds(bench.compute_seconds),
                   bench.measured_first.empty()
                       ? ""
                       : " (" + bench.measured_first + " was measured first)"));
  if (bench.link)
    line(cat(link_text(*bench.link), ", ", bench.link->ranks_per_node,
             " ranks per node"));
  const auto strategies = ran(report);
  if (!strategies.empty())
    line("predictions: " +
         (bench.speed
              ? speed_text(*bench.speed)
              : cost_source_text(strategies.front()->plan->cost_basis)));
  return out;
}

std::string step_times_table(const StepReport& report, const Ink& ink) {
  Table table("<>>>>>>>>");
  table.header({"strategy", "step", "mean", "worst", "predicted", "with gather",
                "iteration", "hidden", "speed-up"});
  for (const StrategyBench* s : ran(report)) {
    const StepTrial& t = s->trial;
    table.row(
        {s->name, human_seconds(t.step.median), human_seconds(t.step.mean),
         human_seconds(t.step.worst), human_seconds(s->predicted_mean()),
         human_seconds(t.step_and_gather.median),
         t.iteration_seconds > 0 ? human_seconds(t.iteration_seconds) : "",
         fmt::format("{:.0f} %", 100 * t.hidden_fraction),
         s->speedup_over_replicated > 0
             ? fmt::format("{:.2f}x", s->speedup_over_replicated)
             : ""});
  }
  return title(ink, "Slowest rank: median step, mean and worst of a period") +
         table.text(ink);
}

std::string step_sizes_table(const StepReport& report, const Ink& ink) {
  Table table("<>>>>>");
  table.header(
      {"strategy", "sent", "predicted", "memory", "predicted", "parameters"});
  for (const StrategyBench* s : ran(report))
    table.row({s->name, human_bytes(s->trial.bytes_sent_max),
               human_bytes(s->bytes_predicted_max),
               human_bytes(s->trial.memory_bytes_max),
               human_bytes(s->memory_predicted_max),
               s->trial.digest.substr(0, kDigestLetters)});
  return title(ink, "Largest rank: bytes of a step, memory; digest") +
         table.text(ink);
}

// Only what was asked for.
std::string comparisons(const StepReport& report, const Ink& ink) {
  const StepBench& bench = report.bench;
  const bool scaled = bench.one_rank_step.mean > 0;
  std::string out;
  if (scaled)
    out += fmt::format(
        "  one rank alone: {}; products on all ranks at once: {} of one "
        "alone\n",
        human_seconds(bench.one_rank_step.mean),
        percent(bench.products.efficiency()));
  Table table("<>>>");
  table.header({"strategy", "serial step", "efficiency", "of the machine's"});
  for (const StrategyBench* s : ran(report)) {
    const double efficiency = bench.scaling(*s);
    const bool serial = s->serial_step.mean > 0;
    if (scaled || serial)
      table.row(
          {s->name, serial ? human_seconds(s->serial_step.mean) : "",
           scaled ? percent(efficiency) : "",
           scaled ? percent(efficiency / bench.products.efficiency()) : ""});
  }
  if (table.empty()) return "";
  return title(ink, "Beside it: no pipeline; one rank alone") + out +
         table.text(ink);
}

std::string bars(const StepReport& report, const Ink& ink) {
  double least = 0, most = 0;
  for (const StrategyBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    least = least > 0 ? std::min(least, mean) : mean;
    most = std::max(most, mean);
  }
  Table table("<><");
  for (const StrategyBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    table.row({s->name, human_seconds(mean),
               ink(tone_of_ratio(mean / least), bar(mean, most, kBarWidth))});
  }
  return title(ink, "Mean step, slowest rank") + table.text(ink);
}

std::string step_verdict(const StepReport& report, const Ink& ink) {
  if (ran(report).size() < 2) return "";
  return "\n" +
         (digests_agree(report)
              ? ink(Tone::kGood,
                    "all strategies lead to the same parameters and states")
              : ink(Tone::kPoor,
                    "strategies lead to different parameters or states")) +
         "\n";
}

std::string step_refusals(const StepReport& report, const Ink& ink) {
  Refusals refused;
  for (const StrategyBench& s : report.bench.strategies)
    if (!s.error.empty()) refused.emplace_back(s.name, s.error);
  return refusals_text(refused, ink);
}

}  // namespace

bool digests_agree(const StepReport& report) {
  const auto strategies = ran(report);
  return std::all_of(strategies.begin(), strategies.end(), [&](const auto* s) {
    return s->trial.digest == strategies.front()->trial.digest &&
           s->trial.state_digest == strategies.front()->trial.state_digest;
  });
}

std::vector<std::string> warnings_of(const StepReport& report) {
  std::vector<std::string> out;
  const StepBench& bench = report.bench;
  if (is_too_fast(bench.link, bench.copy_bytes_per_second))
    out.push_back(too_fast_text(bench.copy_bytes_per_second));
  const auto strategies = ran(report);
  if (!strategies.empty() && !strategies.front()->trial.step.covers_period)
    out.push_back(fmt::format(
        "{} timed steps do not cover the {} of a period of refreshes: mean "
        "and worst are of what was timed",
        report.trial.steps - report.trial.warmup,
        strategies.front()->plan->period));
  if (report.transport == "thread")
    warn_of_shared_cpus(report.mesh.world(), out);
  return out;
}

std::string step_text(const StepReport& report, const Ink& ink) {
  std::string out = step_heading(report, ink);
  if (!ran(report).empty())
    out += step_times_table(report, ink) + step_sizes_table(report, ink) +
           comparisons(report, ink) + bars(report, ink) +
           step_verdict(report, ink);
  return out + step_refusals(report, ink);
}

}  // namespace canzona
