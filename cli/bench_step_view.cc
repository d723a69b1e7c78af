// The answer of `canzona bench step` on the terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/terminal_bars.h"
#include "canzona/report/terminal_table.h"
#include "cli/bench_step.h"
#include "cli/speed_text.h"

namespace canzona::cli {
namespace {

constexpr size_t kBarWidth = 50;
constexpr size_t kDigestLetters = 12;

std::vector<const StrategyBench*> ran(const StepReport& report) {
  std::vector<const StrategyBench*> out;
  for (const StrategyBench& s : report.bench.strategies)
    if (s.error.empty()) out.push_back(&s);
  return out;
}

std::string link_text(const LinkModel& link) {
  return fmt::format(
      "modelled link: {:.3g} GB/s inside a node, {:.3g} GB/s between nodes, "
      "latency {}, {} ranks per node",
      link.intra_bytes_per_second / 1e9, link.inter_bytes_per_second / 1e9,
      human_seconds(link.latency_seconds), link.ranks_per_node);
}

std::string percent(double part) {
  return fmt::format("{} %", std::lround(100 * part));
}

std::string heading(const StepReport& report, const Ink& ink) {
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
  if (bench.link) line(link_text(*bench.link));
  const auto strategies = ran(report);
  if (!strategies.empty())
    line("predictions: " +
         (bench.speed
              ? speed_text(*bench.speed)
              : cost_source_text(strategies.front()->plan->cost_basis)));
  return out;
}

std::string times_table(const StepReport& report, const Ink& ink) {
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
         fmt::format("{:.0f} %", 100 * (1 - t.exposed_fraction)),
         s->speedup_over_replicated > 0
             ? fmt::format("{:.2f}x", s->speedup_over_replicated)
             : ""});
  }
  return title(ink, "Slowest rank: median step, mean and worst of a period") +
         table.text(ink);
}

std::string sizes_table(const StepReport& report, const Ink& ink) {
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

std::string verdict(const StepReport& report, const Ink& ink) {
  if (ran(report).size() < 2) return "";
  return "\n" +
         (digests_agree(report)
              ? ink(Tone::kGood,
                    "all strategies lead to the same parameters and states")
              : ink(Tone::kPoor,
                    "strategies lead to different parameters or states")) +
         "\n";
}

std::string refusals(const StepReport& report, const Ink& ink) {
  std::string out;
  for (const StrategyBench& s : report.bench.strategies)
    if (!s.error.empty())
      out += ink(Tone::kPoor, "  " + s.name) + ": " +
             wrap(printable(s.error), kPageWidth - 4, 4) + "\n";
  return out.empty() ? out : title(ink, "Not run") + out;
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
  if (bench.link_is_too_fast())
    out.push_back(fmt::format(
        "the modelled link is faster than a quarter of what a rank copies "
        "here ({:.3g} GB/s): copies are part of what is measured",
        bench.copy_bytes_per_second / 1e9));
  const auto strategies = ran(report);
  if (!strategies.empty() && !strategies.front()->trial.step.covers_period)
    out.push_back(fmt::format(
        "{} timed steps do not cover the {} of a period of refreshes: mean "
        "and worst are of what was timed",
        report.trial.steps - report.trial.warmup,
        strategies.front()->plan->period));
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (report.transport == "thread" && report.mesh.world() > cpus)
    out.push_back(fmt::format("{} ranks share {} CPUs: times say little",
                              report.mesh.world(), cpus));
  return out;
}

std::string step_text(const StepReport& report, const Ink& ink) {
  std::string out = heading(report, ink);
  if (!ran(report).empty())
    out += times_table(report, ink) + sizes_table(report, ink) +
           comparisons(report, ink) + bars(report, ink) + verdict(report, ink);
  return out + refusals(report, ink);
}

}  // namespace canzona::cli
