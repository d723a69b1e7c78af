#include "canzona/report/bench/bench_text.h"

#include <fmt/format.h>

#include <thread>

#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report::bench {

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

Document link_members(const LinkModel& link) {
  Document out;
  out.set("kind", "modelled link");
  out.set("intra_bytes_per_second", link.intra_bytes_per_second);
  out.set("inter_bytes_per_second", link.inter_bytes_per_second);
  out.set("latency_seconds", link.latency_seconds);
  return out.set("ranks_per_node", link.ranks_per_node);
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

}  // namespace

Document collectives_view(const CollectivesReport& report) {
  const double copy = copy_rate(report);
  Document out;
  out.heading(
      "Collectives",
      cat(" of ", human_bytes(report.bytes), " between ",
          counted_text(report.num_ranks, "rank"), " (", report.transport,
          report.library.empty() ? "" : ", ", report.library, ") on ",
          report.device, "; a copy of that size takes ",
          human_seconds(report.measured.copy_seconds),
          fmt::format(", {:.1f} GB/s", copy / 1e9)));
  out.set("transport", report.transport).set("library", report.library);
  out.set("device", report.device).set("ranks", report.num_ranks);
  out.set("bytes", report.bytes).set("rounds", report.rounds);
  out.set("copy_seconds", report.measured.copy_seconds);
  Listing rows;
  for (const CollectiveTime& row : report.measured.rows) {
    const double rate = row.bytes_per_second();
    rows.add(
        {{"operation", "<operation", row.operation},
         {"of", "<of", row.what},
         {"sent_bytes", ">sent", as_bytes(row.sent)},
         {"seconds", ">time", as_seconds(row.seconds)},
         {"bytes_per_second", ">GB/s", rate, fmt::format("{:.2f}", rate / 1e9)},
         {"", ">of a copy",
          fmt::format("{:.0f}%", copy > 0 ? 100 * rate / copy : 0)}});
  }
  out.text("\n").table("collectives", rows, "", 0);
  return out;
}

}  // namespace canzona::report::bench
