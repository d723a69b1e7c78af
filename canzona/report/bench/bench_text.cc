#include "canzona/report/bench/bench_text.h"

#include <fmt/format.h>

#include <thread>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"

namespace canzona {

std::string speed_text(const MachineSpeed& speed) {
  return cat(
      "measured here, no cost table: ", flops_text(speed.flops_per_second),
      "/s of ", to_string(speed.precision), " products and copies of ",
      bytes_text(speed.copy_bytes_per_second), "/s per rank");
}

std::string link_text(const LinkModel& link) {
  return fmt::format(
      "modelled link: {:.3g} GB/s inside a node, {:.3g} GB/s between nodes, "
      "latency {}",
      link.intra_bytes_per_second / 1e9, link.inter_bytes_per_second / 1e9,
      human_seconds(link.latency_seconds));
}

void begin_link(JsonWriter& out, const LinkModel& link) {
  out.begin_object().field("kind", "modelled link");
  out.field("intra_bytes_per_second", link.intra_bytes_per_second);
  out.field("inter_bytes_per_second", link.inter_bytes_per_second);
  out.field("latency_seconds", link.latency_seconds);
  out.field("ranks_per_node", link.ranks_per_node);
}

namespace {

std::string rank_numbers(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(cat(rank));
  return join(words, " ");
}

}  // namespace

std::string library_memory_text(const std::vector<LibraryMemory>& communicators,
                                int64_t largest) {
  if (communicators.empty()) return "";
  std::string out = fmt::format(
      "NCCL uses {} of GPU memory on rank 0, at most {} on any rank:\n",
      human_bytes(total_bytes(communicators)), human_bytes(largest));
  for (const LibraryMemory& of : communicators)
    out += fmt::format(
        "  {:>10} when founded, {:>10} with its first use: "
        "ranks {}\n",
        human_bytes(of.founding), human_bytes(of.first_use),
        rank_numbers(of.ranks));
  return out;
}

void write_library_memory(JsonWriter& out,
                          const std::vector<LibraryMemory>& communicators,
                          int64_t largest) {
  out.member("nccl_memory").begin_object();
  out.field("bytes", total_bytes(communicators));
  out.field("largest_rank_bytes", largest);
  out.member("communicators").begin_array();
  for (const LibraryMemory& of : communicators) {
    out.begin_object();
    out.member("ranks").values(of.ranks);
    out.field("founding_bytes", of.founding)
        .field("first_use_bytes", of.first_use)
        .end_object();
  }
  out.end_array().end_object();
}

std::string too_fast_text(double copies) {
  return fmt::format(
      "the modelled link is faster than a quarter of a rank's copy rate here "
      "({:.3g} GB/s): the times include copies",
      copies / 1e9);
}

void warn_of_shared_cpus(int num_ranks, std::vector<std::string>& warnings) {
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (num_ranks > cpus)
    warnings.push_back(
        fmt::format("{} ranks share {} CPUs: times are not representative",
                    num_ranks, cpus));
}

namespace {

double copy_rate(const CollectivesReport& report) {
  const double seconds = report.measured.copy_seconds;
  return seconds > 0 ? static_cast<double>(report.bytes) / seconds : 0;
}

// Compares sums in the exact order with the library's, where both were timed.
std::string ratio_lines(const CollectivesReport& report) {
  std::string out;
  for (const CollectiveTime& row : report.measured.rows) {
    if (row.exact) continue;
    const double ratio =
        exact_to_fast(report.measured, row.operation, row.what);
    if (ratio > 0)
      out += fmt::format("{} {}: exact : by the library = {:.2f}\n",
                         row.operation, row.what, ratio);
  }
  return out;
}

}  // namespace

std::string collectives_text(const CollectivesReport& report, const Ink& ink) {
  std::string out =
      ink(Tone::kBold, "Collectives") +
      fmt::format(
          " of {} between {} ({}{}{}) on {}; a copy of that size takes "
          "{}, {:.1f} GB/s\n\n",
          human_bytes(report.bytes), counted_text(report.num_ranks, "rank"),
          report.transport, report.library.empty() ? "" : ", ", report.library,
          report.device, human_seconds(report.measured.copy_seconds),
          copy_rate(report) / 1e9);
  out += fmt::format("{:18}{:28}{:9}{:>12}{:>12}{:>10}{:>11}\n", "operation",
                     "of", "sums", "sent", "time", "GB/s", "of a copy");
  for (const CollectiveTime& row : report.measured.rows)
    out += fmt::format(
        "{:18}{:28}{:9}{:>12}{:>12}{:>10.2f}{:>10.0f}%\n", row.operation,
        row.what, row.exact ? "exact" : "library", human_bytes(row.sent),
        human_seconds(row.seconds), row.bytes_per_second() / 1e9,
        copy_rate(report) > 0 ? 100 * row.bytes_per_second() / copy_rate(report)
                              : 0);
  if (!report.model.empty())
    out += fmt::format("\nplanned: pieces of the largest bucket of {}\n",
                       report.model);
  for (const std::string& lines :
       {ratio_lines(report), library_memory_text(report.library_memory,
                                                 report.largest_library_bytes)})
    if (!lines.empty()) out += "\n" + lines;
  return out;
}

std::string collectives_json(const CollectivesReport& report) {
  JsonWriter out(2);
  out.begin_object()
      .field("transport", report.transport)
      .field("library", report.library)
      .field("device", report.device)
      .field("ranks", report.num_ranks)
      .field("bytes", report.bytes)
      .field("rounds", report.rounds)
      .field("copy_seconds", report.measured.copy_seconds);
  if (!report.model.empty()) out.field("model", report.model);
  if (!report.library_memory.empty())
    write_library_memory(out, report.library_memory,
                         report.largest_library_bytes);
  out.member("collectives").begin_array();
  for (const CollectiveTime& row : report.measured.rows) {
    out.begin_object()
        .field("operation", row.operation)
        .field("of", row.what)
        .field("exact", row.exact)
        .field("sent_bytes", row.sent)
        .field("seconds", row.seconds)
        .field("bytes_per_second", row.bytes_per_second());
    const double ratio =
        exact_to_fast(report.measured, row.operation, row.what);
    if (row.exact && ratio > 0) out.field("exact_to_library", ratio);
    out.end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
