// The answer of `canzona bench step` on the terminal.
#include "canzona/report/bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 50;
constexpr size_t kDigestLetters = 12;

std::vector<const PlanBench*> ran(const StepReport& report) {
  std::vector<const PlanBench*> out;
  for (const PlanBench& one : report.bench.plans)
    if (one.error.empty()) out.push_back(&one);
  return out;
}

bool sizes_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.sizes != plans.front().choice.sizes;
  });
}

bool overlaps_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.overlap != plans.front().choice.overlap;
  });
}

bool strategies_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.strategy != plans.front().choice.strategy;
  });
}

// Names a plan by what distinguishes it from the others: its strategy, sizes of
// ZeRO and overlap.
std::string label_of(const StepReport& report, const PlanBench& one) {
  const std::vector<PlanBench>& plans = report.bench.plans;
  std::vector<std::string> words;
  if (sizes_differ(plans))
    words.push_back(zero_name(one.choice.sizes, report.mesh.homes()));
  if (overlaps_differ(plans)) words.emplace_back(to_string(one.choice.overlap));
  if (words.empty() || strategies_differ(plans))
    words.insert(words.begin(), one.choice.strategy);
  return join(words, " ");
}

std::string percent(double part) {
  return fmt::format("{} %", std::lround(100 * part));
}

// Returns "after 2.1 s (device 0.4 s, plan 10 ms, …), 1.2 s"; the last figure
// is the step itself.
std::string beginning_text(const std::vector<Phase>& phases) {
  const double step = phases.back().seconds;
  std::string parts;
  for (size_t i = 0; i + 1 < phases.size(); ++i)
    parts += cat(i > 0 ? ", " : "", phases[i].name, " ",
                 human_seconds(phases[i].seconds));
  return cat("began after ", human_seconds(total_seconds(phases) - step), " (",
             parts, "), took ", human_seconds(step));
}

// ", the first not timed", ", the first 3 not timed"
std::string untimed_text(int warmup) {
  if (warmup == 0) return "";
  return cat(", the first ", warmup == 1 ? "" : cat(warmup, " "), "not timed");
}

// What all plans have in common and is not usual: "; zero3, overlap none".
std::string cuts_text(const StepReport& report) {
  const std::vector<PlanBench>& plans = report.bench.plans;
  if (plans.empty()) return "";
  const StepChoice& first = plans.front().choice;
  std::vector<std::string> words;
  if (!sizes_differ(plans) && first.sizes != ZeroSizes{})
    words.push_back(zero_name(first.sizes, report.mesh.homes()));
  if (!overlaps_differ(plans) && first.overlap != Overlap::kBackground)
    words.push_back(cat("overlap ", to_string(first.overlap)));
  if (report.trial.micro_batches > 1)
    words.push_back(counted(report.trial.micro_batches, "micro-batch"));
  return words.empty() ? "" : "; " + join(words, ", ");
}

std::string step_heading(const StepReport& report, const Ink& ink) {
  const StepBench& bench = report.bench;
  std::string out =
      ink(Tone::kBold, "Steps") +
      fmt::format(" of {} with {} on {}: {}, {}\n", printable(report.model),
                  report.rule, to_string(report.mesh),
                  counted(report.mesh.world(), "rank"),
                  report.transport == "thread" ? "threads"
                  : report.transport == "mpi"  ? "MPI processes"
                  : report.transport == "nccl" ? "NCCL processes"
                                               : "processes over sockets");
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kPageWidth - 2, 2) + "\n";
  };
  if (const std::string text = report.precision.text(); !text.empty())
    line("precision: " + text);
  line(fmt::format("{} gradients, {}{}{}", to_string(report.trial.gradients),
                   counted(report.trial.steps, "step"),
                   untimed_text(report.trial.warmup), cuts_text(report)));
  const int64_t tokens = report.trial.product_tokens;
  line(fmt::format("forward and backward {} {}{}",
                   tokens > 0 ? fmt::format("are bf16 products of every "
                                            "module's matrices with {} tokens,",
                                            tokens)
                              : "sleep",
                   human_seconds(bench.compute_seconds),
                   bench.measured_first.empty()
                       ? ""
                       : " (measured first: " + bench.measured_first + ")"));
  if (!bench.beginning.empty())
    line("first step: " + beginning_text(bench.beginning));
  if (bench.link)
    line(cat(link_text(*bench.link), ", ",
             counted_text(bench.link->ranks_per_node, "rank"), " per node"));
  const auto plans = ran(report);
  if (!plans.empty())
    line("predictions: " +
         (bench.speed ? speed_text(*bench.speed)
                      : cost_source_text(plans.front()->plan->cost_basis)));
  return out;
}

std::string step_times_table(const StepReport& report, const Ink& ink) {
  Table table("<>>>>>>");
  table.header({"plan", "step", "mean", "worst", "predicted", "with gather",
                "speed-up"});
  std::vector<std::string> hosts;
  for (const PlanBench* one : ran(report)) {
    const StepTrial& t = one->trial;
    table.row({label_of(report, *one), human_seconds(t.step.median),
               human_seconds(t.step.mean), human_seconds(t.step.worst),
               human_seconds(one->predicted_mean()),
               human_seconds(t.step_and_gather.median),
               one->speedup_over_replicated > 0
                   ? fmt::format("{:.2f}x", one->speedup_over_replicated)
                   : ""});
    hosts.push_back(
        cat(label_of(report, *one), " ", human_seconds(t.host_seconds)));
  }
  return title(ink, "Slowest rank: median step, mean and worst of a period") +
         table.text(ink) + "  " +
         wrap("time for a host to issue a step: " + join(hosts, ", "),
              kPageWidth - 2, 2) +
         "\n";
}

// Returns the time without overlap over the time with it; 0 if that was not
// run.
double against_none(const StepReport& report, const PlanBench& one) {
  if (one.choice.overlap == Overlap::kNone) return 0;
  for (const PlanBench* other : ran(report))
    if (other->choice.strategy == one.choice.strategy &&
        other->choice.sizes == one.choice.sizes &&
        other->choice.overlap == Overlap::kNone)
      return other->trial.iteration.median / one.trial.iteration.median;
  return 0;
}

std::string whole_percent(bool is_known, double part) {
  return is_known ? fmt::format("{:.0f} %", 100 * part) : "";
}

// Shows what only some benches have if one of these has it.
std::string iterations_table(const StepReport& report, const Ink& ink) {
  if (report.trial.iterations == 0) return "";
  Table table("<>>>>>>>>>");
  table.header({"plan", "iteration", "spread", "predicted",
                "none :", "computes", "waits", "hidden", "covered", "edge"});
  for (const PlanBench* one : ran(report)) {
    const StepTrial& t = one->trial;
    const double seconds = t.iteration.median;
    const double speed_up = against_none(report, *one);
    table.row(
        {label_of(report, *one), human_seconds(seconds),
         human_seconds(t.iteration.spread),
         human_seconds(one->predicted_iteration_seconds),
         speed_up > 0 ? fmt::format("{:.2f}x", speed_up) : "",
         human_seconds(t.compute_seconds), human_seconds(t.links.waited),
         whole_percent(t.knows_busy, t.links.hidden_fraction()),
         whole_percent(t.knows_exposed, t.links.covered_fraction()),
         whole_percent(one->edge_seconds > 0, one->edge_seconds / seconds)});
  }
  return title(ink,
               "Iterations: slowest rank, median; mean rank: compute, and how "
               "much of the links' time it hides") +
         table.text(ink);
}

std::string step_sizes_table(const StepReport& report, const Ink& ink) {
  Table table("<>>>>");
  table.header({"plan", "sent", "predicted", "to other nodes", "predicted"});
  for (const PlanBench* one : ran(report))
    table.row({label_of(report, *one), human_bytes(one->trial.bytes_sent_max),
               human_bytes(one->bytes_predicted.most_sent()),
               human_bytes(one->trial.slow_bytes_sent_max),
               human_bytes(one->bytes_predicted.most_slow())});
  return title(ink, "Largest rank: bytes of a step") + table.text(ink);
}

std::string memory_table(const StepReport& report, const Ink& ink) {
  Table table("<>>><");
  table.header({"plan", "memory", "predicted", "pools in use", "parameters"});
  for (const PlanBench* one : ran(report))
    table.row({label_of(report, *one), human_bytes(one->trial.memory_bytes_max),
               human_bytes(one->memory_predicted_max),
               human_bytes(one->trial.pools.bytes),
               one->trial.digest.substr(0, kDigestLetters)});
  return title(ink,
               "Largest rank: memory reserved, and the most that modules "
               "used of it; digest") +
         table.text(ink);
}

// Whole owners go without saying.
std::string sharing_lines(const StepReport& report, const Ink& ink) {
  std::string out;
  for (const PlanBench* s : ran(report))
    if (s->plan->options.teams != kTeamsOff)
      out += cat(
          "  ",
          wrap(cat(label_of(report, *s), ": teams ", describe_teams(*s->plan)),
               kPageWidth - 4, 4),
          "\n");
  return out.empty() ? "" : title(ink, "Matrices: who shares them") + out;
}

std::string nccl_memory_lines(const StepReport& report, const Ink& ink) {
  const std::string text =
      library_memory_text(report.library_memory, report.largest_library_bytes);
  return text.empty() ? ""
                      : title(ink, "In addition to the plan's memory") + text;
}

// Shows only the comparisons that were asked for.
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
  table.header({"plan", "serial step", "efficiency", "of the machine's"});
  for (const PlanBench* s : ran(report)) {
    const double efficiency = bench.scaling(*s);
    const bool serial = s->serial_step.mean > 0;
    if (scaled || serial)
      table.row(
          {label_of(report, *s),
           serial ? human_seconds(s->serial_step.mean) : "",
           scaled ? percent(efficiency) : "",
           scaled ? percent(efficiency / bench.products.efficiency()) : ""});
  }
  if (table.empty()) return "";
  return title(ink, "For comparison: no pipelining; one rank alone") + out +
         table.text(ink);
}

std::string bars(const StepReport& report, const Ink& ink) {
  double least = 0, most = 0;
  for (const PlanBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    least = least > 0 ? std::min(least, mean) : mean;
    most = std::max(most, mean);
  }
  Table table("<><");
  for (const PlanBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    table.row({label_of(report, *s), human_seconds(mean),
               ink(tone_of_ratio(mean / least), bar(mean, most, kBarWidth))});
  }
  return title(ink, "Mean step, slowest rank") + table.text(ink);
}

std::string step_verdict(const StepReport& report, const Ink& ink) {
  if (ran(report).size() < 2) return "";
  const std::string wrong = report.disagreement();
  return "\n" +
         (wrong.empty() ? ink(Tone::kGood,
                              "plans that must have the same parameters and "
                              "states do")
                        : ink(Tone::kPoor, wrong)) +
         "\n";
}

std::string step_refusals(const StepReport& report, const Ink& ink) {
  Refusals refused;
  for (const PlanBench& s : report.bench.plans)
    if (!s.error.empty()) refused.emplace_back(label_of(report, s), s.error);
  return refusals_text(refused, "Not run", ink);
}

}  // namespace

std::vector<std::string> warnings_of(const StepReport& report) {
  std::vector<std::string> out;
  const StepBench& bench = report.bench;
  if (is_too_fast(bench.link, bench.copy_bytes_per_second))
    out.push_back(too_fast_text(bench.copy_bytes_per_second));
  const auto plans = ran(report);
  if (!plans.empty() && !plans.front()->trial.step.covers_period)
    out.push_back(fmt::format(
        "{} timed steps do not cover the {} of a refresh period: "
        "mean and worst are over the timed steps only",
        report.trial.steps - report.trial.warmup, plans.front()->plan->period));
  if (report.transport == "thread")
    warn_of_shared_cpus(report.mesh.world(), out);
  return out;
}

std::string step_text(const StepReport& report, const Ink& ink) {
  std::string out = step_heading(report, ink);
  if (!ran(report).empty())
    out += step_times_table(report, ink) + iterations_table(report, ink) +
           step_sizes_table(report, ink) + memory_table(report, ink) +
           sharing_lines(report, ink) + nccl_memory_lines(report, ink) +
           comparisons(report, ink) + bars(report, ink) +
           step_verdict(report, ink);
  return out + step_refusals(report, ink);
}

}  // namespace canzona
