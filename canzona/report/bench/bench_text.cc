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

namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(cat(rank));
  return join(words, " ");
}

}  // namespace

std::string library_memory_text(const std::vector<LibraryMemory>& communicators,
                                int64_t largest) {
  if (communicators.empty()) return "";
  std::string out = fmt::format(
      "NCCL takes {} of rank 0's GPU memory, {} of the rank with the most:\n",
      human_bytes(total_bytes(communicators)), human_bytes(largest));
  for (const LibraryMemory& of : communicators)
    out += fmt::format(
        "  {:>10} when founded, {:>10} with its first use: "
        "ranks {}\n",
        human_bytes(of.founding), human_bytes(of.first_use),
        ranks_text(of.ranks));
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
