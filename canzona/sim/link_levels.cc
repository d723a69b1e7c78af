#include "canzona/sim/link_levels.h"

#include <algorithm>

namespace canzona {
namespace {

// The rate of messages to another block of level - 1, which cross all levels
// between nodes up to this one.
double rate_up_to(const std::vector<LinkLevel>& levels, size_t level) {
  double rate = levels[1].rate();
  for (size_t l = 2; l <= level; ++l) rate = std::min(rate, levels[l].rate());
  return rate;
}

}  // namespace

Links links_of(const std::vector<LinkLevel>& levels) {
  const LinkLevel& node = levels.front();
  const LinkLevel& next = levels[levels.size() > 1 ? 1 : 0];
  return {.intra_bytes_per_second = node.rate(),
          .inter_bytes_per_second = next.rate(),
          .latency_seconds = next.latency_seconds,
          .nominal = false,
          .intra_latency_seconds = node.latency_seconds};
}

size_t level_of(const std::vector<LinkLevel>& levels, int32_t a, int32_t b) {
  for (size_t l = 0; l + 1 < levels.size(); ++l)
    if (a / levels[l].ranks == b / levels[l].ranks) return l;
  return levels.size() - 1;
}

FarLinks far_links(const std::vector<LinkLevel>& levels,
                   const PeersByLevel& peers) {
  FarLinks far;
  double count = 0, weighted = 0;
  for (size_t l = 1; l < peers.size(); ++l) {
    if (peers[l] == 0) continue;
    const auto here = static_cast<double>(peers[l]);
    count += here;
    weighted += here * levels[1].rate() / rate_up_to(levels, l);
    far.added_latency_seconds =
        std::max(far.added_latency_seconds,
                 levels[l].latency_seconds - levels[1].latency_seconds);
  }
  if (count > 0) far.scale = weighted / count;
  return far;
}

}  // namespace canzona
