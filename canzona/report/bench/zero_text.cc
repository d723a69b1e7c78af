// The answer of `canzona bench zero` on the terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/bench/zero_report.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
namespace {

using Trial = IterationTrial;

constexpr size_t kZeroDigestLetters = 8;

std::string whole_percent(double part) {
  return fmt::format("{:.0f} %", 100 * part);
}

std::string sizes_text(const ZeroSizes& sizes) {
  return fmt::format("{},{},{}", sizes.z1, sizes.z2, sizes.z3);
}

std::string zero_heading(const ZeroReport& report, const Ink& ink) {
  const ZeroBench& bench = report.bench;
  std::string out =
      ink(Tone::kBold, "Iterations") +
      fmt::format(" of {} ({} parameters) with {} on {}: {} threads\n",
                  printable(report.model),
                  human_count(static_cast<double>(report.num_parameters)),
                  report.rule, to_string(report.request.mesh),
                  report.request.mesh.world());
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kPageWidth - 2, 2) + "\n";
  };
  if (const std::string text = report.precision.text(); !text.empty())
    line("precision: " + text);
  line(fmt::format(
      "{} micro-batches of {} tokens on each data-parallel rank; {} rounds of "
      "{} timed iterations; nodes of {} ranks{}",
      report.num_micro_batches(), report.request.settings.decoder.tokens(),
      report.request.repeats, report.request.trial.steps,
      report.request.communicator.ranks_per_node,
      report.reach == Reach::kDirect ? "" : ", each sent to once"));
  if (bench.link) line(link_text(*bench.link));
  const MachineLimits& limits = bench.limits;
  line(fmt::format(
      "this machine: a rank multiplies {:.3g} GFLOP/s alone, {:.3g} beside all "
      "others; copies {:.3g} and {:.3g} GB/s; all meet in {}, beside compute "
      "in {}",
      limits.flops.alone / 1e9, limits.flops.together / 1e9,
      limits.copies.alone / 1e9, limits.copies.together / 1e9,
      human_seconds(limits.meetings.idle),
      human_seconds(limits.meetings.beside_compute)));
  line(fmt::format("without links and overlap z={} computes for {}",
                   sizes_text(bench.measured_first),
                   human_seconds(bench.compute_seconds)));
  return out;
}

// Iteration without overlap / with it, of the same sizes; 0: not run.
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
    table.row({sizes_text(cell->sizes), std::string(to_string(cell->overlap)),
               human_seconds(cell->median(&Trial::compute_seconds)),
               human_seconds(cell->median(&Trial::waited_seconds)),
               whole_percent(cell->hidden_fraction()),
               report.bench.link ? whole_percent(cell->covered_fraction()) : "",
               whole_percent(cell->step_hidden_fraction()),
               whole_percent(cell->edge_seconds / cell->iteration_seconds())});
  return title(ink,
               "Mean rank: compute, and what of the links' time it hides") +
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
                    "cells that must lead to the same parameters and states do")
              : ink(Tone::kPoor, wrong)) +
         "\n";
}

std::string zero_refusals(const ZeroReport& report, const Ink& ink) {
  Refusals refused;
  for (const ZeroCell& cell : report.bench.cells)
    if (!cell.error.empty())
      refused.emplace_back(sizes_text(cell.sizes), cell.error);
  return refusals_text(refused, ink);
}

}  // namespace

std::vector<const ZeroCell*> ZeroReport::ran() const {
  std::vector<const ZeroCell*> out;
  for (const ZeroCell& cell : bench.cells)
    if (cell.error.empty()) out.push_back(&cell);
  return out;
}

std::vector<std::string> warnings_of(const ZeroReport& report) {
  std::vector<std::string> out;
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

}  // namespace canzona
