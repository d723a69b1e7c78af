// Any bytes are a cluster or a UsageError, and the links of a cluster take a
// time from any rank to any other.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/sim/cluster.h"

namespace {

using canzona::sim::Cluster;

void require_that(bool holds) {
  if (!holds) std::abort();
}

void ask(const Cluster& cluster) {
  canzona::PlanOptions options;
  canzona::sim::Workload work;
  canzona::sim::apply(cluster, options, work);
  require_that(options.ranks_per_node >= 1);
  require_that(options.links.intra_bytes_per_second > 0 &&
               options.links.inter_bytes_per_second > 0);
  canzona::sim::PeersByLevel peers(cluster.levels.size(), 0);
  for (const int32_t peer : {0, 1, 7, 8, 1000, (1 << 20) - 1}) {
    const size_t level = canzona::sim::level_of(cluster.levels, 0, peer);
    require_that(level < cluster.levels.size());
    ++peers[level];
    const canzona::sim::FarLinks far =
        canzona::sim::far_links(cluster.levels, peers);
    require_that(std::isfinite(far.scale) && far.scale > 0);
    require_that(far.added_latency_seconds >= 0);
  }
  require_that(canzona::sim::slowest_of(1 << 20, cluster.spread.compute) >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ask(Cluster::parse(text, "fuzz"));
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
