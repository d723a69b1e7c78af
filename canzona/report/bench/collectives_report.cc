#include "canzona/report/bench/collectives_report.h"

#include <fmt/format.h>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona {
namespace {

double copy_rate(const CollectivesReport& report) {
  const double seconds = report.measured.copy_seconds;
  return seconds > 0 ? static_cast<double>(report.bytes) / seconds : 0;
}

// Sums in the one order against those of the library, where both were timed.
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
          " of {} between {} ranks ({}{}{}) on {}; a copy of as much "
          "takes {}, {:.1f} GB/s\n\n",
          human_bytes(report.bytes), report.num_ranks, report.transport,
          report.library.empty() ? "" : ", ", report.library, report.device,
          human_seconds(report.measured.copy_seconds), copy_rate(report) / 1e9);
  out += fmt::format("{:18}{:28}{:9}{:>12}{:>12}{:>10}{:>11}\n", "operation",
                     "of", "sums", "sent", "time", "GB/s", "of a copy");
  for (const CollectiveTime& row : report.measured.rows)
    out += fmt::format(
        "{:18}{:28}{:9}{:>12}{:>12}{:>10.2f}{:>10.0f}%\n", row.operation,
        row.what, row.exact ? "exact" : "library", human_bytes(row.sent),
        human_seconds(row.seconds), row.bytes_per_second() / 1e9,
        copy_rate(report) > 0 ? 100 * row.bytes_per_second() / copy_rate(report)
                              : 0);
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
