#include "canzona/report/bench/bench_text.h"

#include <fmt/format.h>

#include <thread>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal.h"

namespace canzona {

std::string speed_text(const MachineSpeed& speed) {
  return cat(
      "measured here, no cost table: ", flops_text(speed.flops_per_second),
      "/s of ", to_string(speed.precision), " products and copies of ",
      bytes_text(speed.copy_bytes_per_second), "/s a rank");
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

std::string too_fast_text(double copies) {
  return fmt::format(
      "the modelled link is faster than a quarter of what a rank copies "
      "here ({:.3g} GB/s): copies are part of what is measured",
      copies / 1e9);
}

void warn_of_shared_cpus(int num_ranks, std::vector<std::string>& warnings) {
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (num_ranks > cpus)
    warnings.push_back(fmt::format("{} ranks share {} CPUs: times say little",
                                   num_ranks, cpus));
}

}  // namespace canzona
