#include "canzona/report/bench/zero_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/zero_view.h"

namespace canzona {

// The answer of `canzona bench zero` on the terminal.
namespace {

using Trial = IterationTrial;

constexpr size_t kZeroDigestLetters = 8;

std::string whole_percent(double part) {
  return fmt::format("{:.0f} %", 100 * part);
}

std::string sizes_text(const ZeroSizes& sizes) {
  return fmt::format("{},{},{}", sizes.z1, sizes.z2, sizes.z3);
}

std::string machine_text(const MachineLimits& limits) {
  return fmt::format(
      "this machine: a rank computes {:.3g} GFLOP/s alone, {:.3g} with all "
      "others running; copies {:.3g} and {:.3g} GB/s; a barrier takes {}, "
      "during compute {}",
      limits.flops.alone / 1e9, limits.flops.together / 1e9,
      limits.copies.alone / 1e9, limits.copies.together / 1e9,
      human_seconds(limits.meetings.idle),
      human_seconds(limits.meetings.beside_compute));
}

std::string zero_heading(const ZeroReport& report, const Ink& ink) {
  const ZeroBench& bench = report.bench;
  std::string out =
      ink(Tone::kBold, "Iterations") +
      fmt::format(" of {} ({} parameters) with {} on {}: {}\n",
                  printable(report.model),
                  human_count(static_cast<double>(report.num_parameters)),
                  report.rule, to_string(report.request.mesh),
                  counted_text(report.request.mesh.world(), "thread"));
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kPageWidth - 2, 2) + "\n";
  };
  if (const std::string text = report.precision.text(); !text.empty())
    line("precision: " + text);
  line(fmt::format(
      "{} of {} on each data-parallel rank; {} of {}; nodes of {}{}",
      counted_text(report.num_micro_batches(), "micro-batch"),
      counted_text(report.request.settings.decoder.tokens(), "token"),
      counted_text(report.request.repeats, "round"),
      counted_text(report.request.trial.steps, "timed iteration"),
      counted_text(report.request.communicator.ranks_per_node, "rank"),
      report.reach == Reach::kDirect ? ""
      : report.reach == Reach::kAuto
          ? ", each sent to once if that changes no bit"
          : ", each sent to once"));
  if (bench.link) line(link_text(*bench.link));
  if (report.on_device())
    line(report.compute_text());
  else
    line(machine_text(bench.limits));
  line(fmt::format("without links and overlap z={} computes for {}",
                   sizes_text(bench.measured_first),
                   human_seconds(bench.compute_seconds)));
  return out;
}
// Returns the time without overlap over the time with it, for the same sizes; 0
// if no cell without overlap was run.
double against_none(const ZeroReport& report, const ZeroCell& cell) {
  for (const ZeroCell* other : report.ran())
    if (other->sizes == cell.sizes && other->overlap == Overlap::kNone)
      return other->iteration_seconds() / cell.iteration_seconds();
  return 0;
}

std::string zero_times_table(const ZeroReport& report, const Ink& ink) {
  Table table("<<>>>>");
  table.header(
      {"z1,z2,z3", "overlap", "iteration", "spread", "predicted", "none :"});
  for (const ZeroCell* cell : report.ran()) {
    const double speed_up = against_none(report, *cell);
    table.row({sizes_text(cell->sizes), std::string(to_string(cell->overlap)),
               human_seconds(cell->iteration_seconds()),
               human_seconds(cell->iteration_spread()),
               human_seconds(cell->predicted.seconds),
               speed_up > 0 ? fmt::format("{:.2f}x", speed_up) : ""});
  }
  return title(ink, "Slowest rank, medians of the timed iterations") +
         table.text(ink);
}

std::string hidden_table(const ZeroReport& report, const Ink& ink) {
  Table table("<<>>>>>>");
  table.header({"z1,z2,z3", "overlap", "computes", "waits", "hidden", "covered",
                "in step", "edge"});
  for (const ZeroCell* cell : report.ran())
    table.row(
        {sizes_text(cell->sizes), std::string(to_string(cell->overlap)),
         human_seconds(cell->median(&Trial::compute_seconds)),
         human_seconds(cell->median(&Trial::waited_seconds)),
         whole_percent(cell->hidden_fraction()),
         report.knows_exposed() ? whole_percent(cell->covered_fraction()) : "",
         whole_percent(cell->step_hidden_fraction()),
         whole_percent(cell->edge_seconds / cell->iteration_seconds())});
  return title(ink,
               "Mean rank: compute, and how much of the links' time it hides") +
         table.text(ink);
}

std::string zero_sizes_table(const ZeroReport& report, const Ink& ink) {
  Table table("<<>>>>>>");
  table.header({"z1,z2,z3", "overlap", "slow bytes", "predicted", "memory",
                "predicted", "pools", "digest"});
  for (const ZeroCell* cell : report.ran()) {
    const Trial& trial = cell->first();
    table.row({sizes_text(cell->sizes), std::string(to_string(cell->overlap)),
               human_bytes(std::ranges::max(trial.slow_bytes_sent)),
               human_bytes(cell->bytes.most_slow()),
               human_bytes(std::ranges::max(trial.memory_bytes)),
               human_bytes(cell->memory_predicted_max),
               human_bytes(trial.pools.bytes),
               trial.digest.substr(0, kZeroDigestLetters)});
  }
  return title(ink,
               "Largest rank: bytes between nodes in an iteration, memory") +
         table.text(ink);
}

std::string zero_verdict(const ZeroReport& report, const Ink& ink) {
  if (report.ran().size() < 2) return "";
  const std::string wrong = report.disagreement();
  return "\n" +
         (wrong.empty()
              ? ink(Tone::kGood,
                    "cells that must have the same parameters and states do")
              : ink(Tone::kPoor, wrong)) +
         "\n";
}

std::string zero_refusals(const ZeroReport& report, const Ink& ink) {
  Refusals refused;
  for (const ZeroCell& cell : report.bench.cells)
    if (!cell.error.empty())
      refused.emplace_back(sizes_text(cell.sizes), cell.error);
  return refusals_text(refused, "Not run", ink);
}

}  // namespace

std::vector<const ZeroCell*> ZeroReport::ran() const {
  std::vector<const ZeroCell*> out;
  for (const ZeroCell& cell : bench.cells)
    if (cell.error.empty()) out.push_back(&cell);
  return out;
}

std::string ZeroReport::compute_text() const {
  const ModuleCompute& compute = request.compute;
  return compute.tokens > 0
             ? fmt::format(
                   "forward and backward are bf16 products of every module's "
                   "matrices with {} tokens, on {}",
                   compute.tokens, device)
             : fmt::format(
                   "forward and backward take {} on {}, divided in proportion "
                   "to elements",
                   human_seconds(compute.seconds), device);
}

std::vector<std::string> warnings_of(const ZeroReport& report) {
  std::vector<std::string> out;
  if (report.on_device()) return out;
  const ZeroBench& bench = report.bench;
  const double copies = bench.limits.copies.together;
  if (is_too_fast(bench.link, copies)) out.push_back(too_fast_text(copies));
  warn_of_shared_cpus(report.request.mesh.world(), out);
  return out;
}

std::string zero_text(const ZeroReport& report, const Ink& ink) {
  std::string out = zero_heading(report, ink);
  if (!report.ran().empty())
    out += zero_times_table(report, ink) + hidden_table(report, ink) +
           zero_sizes_table(report, ink) + zero_verdict(report, ink);
  return out + zero_refusals(report, ink);
}

// The answer of `canzona bench zero` as JSON.
namespace {

void write_zero_link(JsonWriter& out, const ZeroReport& report) {
  const Link& link = report.bench.link;
  if (!link) {
    out.null();
    return;
  }
  begin_link(out, *link);
  out.member("comm_ratio");
  report.request.comm_ratio > 0 ? out.value(report.request.comm_ratio)
                                : out.null();
  out.end_object();
}

void write_limits(JsonWriter& out, const MachineLimits& limits) {
  out.begin_object();
  out.field("gemm_flops_one_rank", limits.flops.alone);
  out.field("gemm_flops_all_ranks", limits.flops.together);
  out.field("copy_bytes_per_second_one_rank", limits.copies.alone);
  out.field("copy_bytes_per_second_all_ranks", limits.copies.together);
  out.field("meeting_seconds_idle", limits.meetings.idle);
  out.field("meeting_seconds_beside_compute", limits.meetings.beside_compute);
  out.end_object();
}

// The busy time of links is known only if they are modelled.
void write_cell_times(JsonWriter& out, const ZeroReport& report,
                      const ZeroCell& cell) {
  const auto known = [&](bool is_known, const char* name, double value) {
    if (is_known)
      out.field(name, value);
    else
      out.member(name).null();
  };
  const auto of_links = [&](const char* name, double value) {
    known(report.knows_exposed(), name, value);
  };
  const auto of_busy = [&](const char* name, double value) {
    known(report.knows_busy(), name, value);
  };
  const double seconds = cell.iteration_seconds();
  const StepTimes times = cell.iteration_times();
  out.field("iteration_seconds", seconds);
  out.field("iteration_seconds_spread", cell.iteration_spread());
  out.field("iteration_seconds_mean", times.mean);
  out.field("iteration_seconds_worst", times.worst);
  out.member("rounds").begin_array();
  for (const IterationTrial& trial : cell.trials) out.values(trial.seconds);
  out.end_array();
  out.field("predicted_seconds", cell.predicted.seconds);
  of_busy("hidden_fraction", cell.hidden_fraction());
  out.field("predicted_hidden_fraction", cell.predicted.hidden_fraction);
  of_links("covered_fraction", cell.covered_fraction());
  of_busy("step_hidden_fraction", cell.step_hidden_fraction());
  of_links("step_covered_fraction", cell.step_covered_fraction());
  out.field("step_hidden_limit", cell.step_limit);
  out.field("compute_seconds", cell.median(&IterationTrial::compute_seconds));
  out.field("waited_seconds", cell.median(&IterationTrial::waited_seconds));
  of_busy("busy_seconds", cell.median(&IterationTrial::busy_seconds));
  of_links("exposed_seconds", cell.median(&IterationTrial::exposed_seconds));
  out.field("step_waited_seconds",
            cell.median(&IterationTrial::step_waited_seconds));
  of_busy("step_busy_seconds", cell.median(&IterationTrial::step_busy_seconds));
  of_links("step_exposed_seconds",
           cell.median(&IterationTrial::step_exposed_seconds));
  out.field("optimizer_seconds", cell.median(&IterationTrial::step_seconds));
  out.field("link_seconds", cell.link_seconds);
  out.field("edge_seconds", cell.edge_seconds);
  out.field("edge_fraction", cell.edge_seconds / seconds);
}

template <class Values>
int64_t most(const Values& values) {
  return std::ranges::max(values);
}

void write_sizes_of(JsonWriter& out, const ZeroCell& cell) {
  const IterationTrial& trial = cell.first();
  out.field("slow_bytes_per_rank", most(trial.slow_bytes_sent));
  out.field("slow_bytes_predicted", cell.bytes.most_slow());
  out.field("bytes_per_rank", most(trial.bytes_sent));
  out.field("bytes_predicted", cell.bytes.most_sent());
  out.field("memory_bytes_max", most(trial.memory_bytes));
  out.field("memory_predicted_max", cell.memory_predicted_max);
  out.member("pool_high_water").begin_object();
  out.field("bytes", trial.pools.bytes);
  out.field("gather_slots", trial.pools.gather_slots);
  out.field("scatter_slots", trial.pools.scatter_slots).end_object();
  out.field("loss", trial.loss);
  out.field("exchange", to_string(cell.plan->options.exchange));
  write_teams_by_size(out.member("teams"), *cell.plan);
  out.field("period", cell.plan->period);
  out.field("plan_digest", cell.plan->digest);
}

void write_compute(JsonWriter& out, const ZeroReport& report) {
  if (!report.on_device()) {
    out.null();
    return;
  }
  const ModuleCompute& compute = report.request.compute;
  out.begin_object().member("product_tokens");
  compute.tokens > 0 ? out.value(compute.tokens) : out.null();
  out.member("seconds");
  compute.tokens > 0 ? out.null() : out.value(compute.seconds);
  out.end_object();
}

void write_cell(JsonWriter& out, const ZeroReport& report,
                const ZeroCell& cell) {
  out.begin_object();
  write_sizes(out.member("zero"), cell.sizes);
  out.field("overlap", to_string(cell.overlap));
  if (!cell.error.empty()) {
    out.field("error", cell.error).end_object();
    return;
  }
  out.field("digest", cell.first().digest);
  out.field("state_digest", cell.first().state_digest);
  write_cell_times(out, report, cell);
  write_sizes_of(out, cell);
  out.end_object();
}

void write_first(JsonWriter& out, const ZeroBench& bench) {
  const MeasuredInputs& inputs = bench.inputs;
  out.begin_object();
  write_sizes(out.member("zero"), bench.measured_first);
  out.field("compute_seconds", bench.compute_seconds);
  out.field("optimizer_seconds", inputs.step_seconds);
  out.field("other_seconds", inputs.other_seconds);
  out.member("forward_seconds").values(inputs.forward_seconds);
  out.member("backward_seconds").values(inputs.backward_seconds);
  out.end_object();
}

}  // namespace

std::string zero_json(const ZeroReport& report) {
  const ZeroBench& bench = report.bench;
  JsonWriter out(2);
  out.begin_object().field("model", report.model);
  out.field("parameters", report.num_parameters).member("mesh");
  write_mesh(out, report.request.mesh);
  out.field("world", report.request.mesh.world()).field("rule", report.rule);
  write_precision(out, report.precision);
  out.field("strategy", report.strategy).field("transport", "thread");
  out.field("ranks_per_node", report.request.communicator.ranks_per_node);
  out.field("collectives", to_string(report.reach));
  out.field("micro_batches", report.num_micro_batches());
  out.field("tokens", report.request.settings.decoder.tokens());
  out.field("steps", report.request.trial.steps)
      .field("warmup", report.request.trial.warmup);
  out.field("repeats", report.request.repeats);
  write_zero_link(out.member("link"), report);
  out.field("device", report.device);
  write_compute(out.member("compute"), report);
  out.member("machine");
  report.on_device() ? static_cast<void>(out.null())
                     : write_limits(out, bench.limits);
  write_first(out.member("measured_first"), bench);
  out.field("digests_agree", report.disagreement().empty());
  out.member("warnings").values(warnings_of(report));
  out.member("cells").begin_array();
  for (const ZeroCell& cell : bench.cells) write_cell(out, report, cell);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
