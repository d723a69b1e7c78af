#include "canzona/report/bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/models_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"

namespace canzona {

// The answer of `canzona bench step` on the terminal.
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
  line(fmt::format("{} gradients, {}{}", to_string(report.trial.gradients),
                   counted(report.trial.steps, "step"),
                   untimed_text(report.trial.warmup)));
  const int64_t tokens = report.trial.product_tokens;
  line(fmt::format("forward and backward {} {}{}",
                   tokens > 0 ? fmt::format("are bf16 products of every "
                                            "module's matrices with {} tokens,",
                                            tokens)
                              : "sleep",
                   human_seconds(bench.compute_seconds),
                   bench.measured_first.empty()
                       ? ""
                       : " (" + bench.measured_first + " was measured first)"));
  if (!bench.beginning.empty())
    line("first step: " + beginning_text(bench.beginning));
  if (bench.link)
    line(cat(link_text(*bench.link), ", ",
             counted_text(bench.link->ranks_per_node, "rank"), " per node"));
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
         t.knows_hidden ? fmt::format("{:.0f} %", 100 * t.hidden_fraction) : "",
         s->speedup_over_replicated > 0
             ? fmt::format("{:.2f}x", s->speedup_over_replicated)
             : ""});
  }
  std::vector<std::string> hosts;
  for (const StrategyBench* s : ran(report))
    hosts.push_back(cat(s->name, " ", human_seconds(s->trial.host_seconds)));
  return title(ink, "Slowest rank: median step, mean and worst of a period") +
         table.text(ink) + "  " +
         wrap("time for a host to issue a step: " + join(hosts, ", "),
              kPageWidth - 2, 2) +
         "\n";
}

std::string step_sizes_table(const StepReport& report, const Ink& ink) {
  Table table("<>>>>>>>");
  table.header({"strategy", "sent", "predicted", "other nodes", "predicted",
                "memory", "predicted", "parameters"});
  for (const StrategyBench* s : ran(report))
    table.row({s->name, human_bytes(s->trial.bytes_sent_max),
               human_bytes(s->bytes_predicted_max),
               human_bytes(s->trial.slow_bytes_sent_max),
               human_bytes(s->slow_bytes_predicted_max),
               human_bytes(s->trial.memory_bytes_max),
               human_bytes(s->memory_predicted_max),
               s->trial.digest.substr(0, kDigestLetters)});
  return title(ink, "Largest rank: bytes of a step, memory; digest") +
         table.text(ink);
}

bool is_plain(const PlanOptions& options) {
  return options.teams == kTeamsOff && options.exchange == ExchangeBy::kRounds;
}

// Whole owners and rounds go without saying.
std::string sharing_lines(const StepReport& report, const Ink& ink) {
  std::string out;
  for (const StrategyBench* s : ran(report))
    if (const PlanOptions& options = s->plan->options; !is_plain(options))
      out += cat("  ",
                 wrap(cat(s->name, ": exchange ", to_string(options.exchange),
                          ", teams ", describe_teams(*s->plan)),
                      kPageWidth - 4, 4),
                 "\n");
  return out.empty()
             ? ""
             : title(ink, "Matrices: how they travel, who shares them") + out;
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
  return title(ink, "For comparison: no pipelining; one rank alone") + out +
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
                    "all strategies give the same parameters and states")
              : ink(Tone::kPoor,
                    "strategies give different parameters or states")) +
         "\n";
}

std::string step_refusals(const StepReport& report, const Ink& ink) {
  Refusals refused;
  for (const StrategyBench& s : report.bench.strategies)
    if (!s.error.empty()) refused.emplace_back(s.name, s.error);
  return refusals_text(refused, "Not run", ink);
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
    out.push_back(
        fmt::format("{} timed steps do not cover the {} of a refresh period: "
                    "mean and worst are over the timed steps only",
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
           sharing_lines(report, ink) + nccl_memory_lines(report, ink) +
           comparisons(report, ink) + bars(report, ink) +
           step_verdict(report, ink);
  return out + step_refusals(report, ink);
}

// The answer of `canzona bench step` as JSON.
namespace {

void write_step_link(JsonWriter& out, const StepBench& bench) {
  if (!bench.link) {
    out.null();
    return;
  }
  begin_link(out, *bench.link);
  out.field("copy_bytes_per_second", bench.copy_bytes_per_second);
  out.field("too_fast", is_too_fast(bench.link, bench.copy_bytes_per_second))
      .end_object();
}

void write_step_times(JsonWriter& out, const StepBench& bench,
                      const StrategyBench& s) {
  const StepTrial& t = s.trial;
  out.field("step_seconds", t.step.median);
  out.field("step_seconds_mean", t.step.mean);
  out.field("step_seconds_worst", t.step.worst);
  out.field("step_compute_seconds", t.step_compute_seconds);
  out.field("host_seconds", t.host_seconds);
  out.field("step_and_gather_seconds", t.step_and_gather.median);
  out.member("iteration_seconds");
  t.iteration_seconds > 0 ? out.value(t.iteration_seconds) : out.null();
  const auto of_links = [&](const char* name, double value) {
    out.member(name);
    t.knows_hidden ? out.value(value) : out.null();
  };
  of_links("hidden_fraction", t.hidden_fraction);
  of_links("step_hidden_fraction", t.step_hidden_fraction);
  out.field("waited_seconds", t.waited_seconds);
  out.field("links_busy_seconds", t.links_busy_seconds);
  out.field("predicted_step_seconds", s.predicted_mean());
  out.field("predicted_step_seconds_worst", s.predicted_worst());
  if (s.serial_step.mean > 0)
    out.field("serial_step_seconds", s.serial_step.mean);
  if (bench.one_rank_step.mean > 0) {
    out.field("scaling_efficiency", bench.scaling(s));
    out.field("scaling_efficiency_of_machine",
              bench.scaling(s) / bench.products.efficiency());
  }
  out.member("speedup_over_replicated");
  s.speedup_over_replicated > 0 ? out.value(s.speedup_over_replicated)
                                : out.null();
}

void write_ranks(JsonWriter& out, const StrategyBench& s) {
  std::vector<double> predicted;
  for (const RankCost& rank : s.predicted)
    predicted.push_back(rank.step_seconds_mean);
  out.member("rank_step_seconds").values(s.trial.rank_seconds);
  out.member("rank_predicted_seconds").values(predicted);
  out.member("rank_bytes_sent").values(s.trial.bytes_sent);
  out.member("rank_slow_bytes_sent").values(s.trial.slow_bytes_sent);
  out.member("rank_memory_bytes").values(s.trial.memory_bytes);
}

void write_strategy(JsonWriter& out, const StepBench& bench,
                    const StrategyBench& s, bool audited) {
  out.begin_object().field("name", s.name);
  if (!s.error.empty()) {
    out.field("error", s.error).end_object();
    return;
  }
  out.field("digest", s.trial.digest);
  out.field("state_digest", s.trial.state_digest);
  out.field("digest_seconds", s.trial.digest_seconds);
  write_step_times(out, bench, s);
  out.field("bytes_sent_max", s.trial.bytes_sent_max);
  out.field("bytes_predicted_max", s.bytes_predicted_max);
  out.field("slow_bytes_sent_max", s.trial.slow_bytes_sent_max);
  out.field("slow_bytes_predicted_max", s.slow_bytes_predicted_max);
  out.field("collectives", to_string(s.plan->options.zero.reach));
  out.field("exchange", to_string(s.plan->options.exchange));
  write_teams_by_size(out.member("teams"), *s.plan);
  out.field("memory_bytes_max", s.trial.memory_bytes_max);
  out.field("memory_predicted_max", s.memory_predicted_max);
  write_ranks(out, s);
  out.field("plan_digest", s.plan->digest);
  if (audited) write_audit(out.member("audit"), *s.plan);
  out.end_object();
}

// Takes the period from any plan that was made: all strategies have the same.
void write_period(JsonWriter& out, const StepBench& bench) {
  for (const StrategyBench& s : bench.strategies) {
    if (!s.plan) continue;
    out.field("period", s.plan->period).field("phases", s.plan->phases);
    out.field("covers_period", s.trial.step.covers_period);
    out.field("cost", bench.speed ? "this machine" : s.plan->cost_basis.source);
    if (!bench.speed) return;
    out.field("flops_per_second", bench.speed->flops_per_second);
    out.field("copy_bytes_per_second", bench.speed->copy_bytes_per_second);
    return;
  }
}

}  // namespace

std::string step_json(const StepReport& report) {
  const StepBench& bench = report.bench;
  JsonWriter out(2);
  out.begin_object().field("model", report.model).member("mesh");
  write_mesh(out, report.mesh);
  out.field("world", report.mesh.world()).field("rule", report.rule);
  write_precision(out, report.precision);
  out.field("transport", report.transport);
  out.field("gradients", to_string(report.trial.gradients));
  out.field("steps", report.trial.steps);
  out.field("warmup", report.trial.warmup);
  out.field("iterations", report.trial.iterations);
  write_period(out, bench);
  out.member("beginning").begin_array();
  for (const Phase& phase : bench.beginning)
    out.begin_object()
        .field("phase", phase.name)
        .field("seconds", phase.seconds)
        .end_object();
  out.end_array();
  out.field("compute_seconds", bench.compute_seconds);
  out.member("product_tokens");
  report.trial.product_tokens > 0 ? out.value(report.trial.product_tokens)
                                  : out.null();
  out.field("measured_first", bench.measured_first);
  if (bench.one_rank_step.mean > 0) {
    out.field("one_rank_step_seconds", bench.one_rank_step.mean);
    out.field("machine_efficiency", bench.products.efficiency());
    if (bench.products_bf16)
      out.field("machine_efficiency_bf16", bench.products_bf16->efficiency());
  }
  write_step_link(out.member("link"), bench);
  if (!report.library_memory.empty())
    write_library_memory(out, report.library_memory,
                         report.largest_library_bytes);
  out.field("digests_agree", digests_agree(report));
  out.member("warnings").values(warnings_of(report));
  out.member("strategies").begin_array();
  for (const StrategyBench& s : bench.strategies)
    write_strategy(out, bench, s, report.audited);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
