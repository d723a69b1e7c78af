#include "canzona/sim/workload.h"

#include <algorithm>

#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/ports.h"

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

// Pairwise: every rank sends each other rank its share, which comes back
// summed.
double tp_sum_seconds(const Plan& plan, const Workload& workload) {
  const int64_t tp = plan.mesh.tp;
  if (tp == 1 || workload.hidden == 0) return 0;
  const int64_t share = workload.compute.tokens * workload.hidden *
                        workload.bytes_per_activation / tp;
  const int64_t segments =
      (share + workload.segment_bytes - 1) / workload.segment_bytes;
  // Counts the other ranks of a home, as its first rank sees them.
  int64_t near = 0, far = 0;
  for (int32_t t = 1; t < plan.mesh.tp; ++t) {
    const int32_t other = node_of(plan.options, plan.mesh.rank(0, 0, t));
    ++(other == node_of(plan.options, 0) ? near : far);
  }
  const auto half = [&](int64_t messages) {
    Transfer transfer;
    transfer.bytes = {.sent_intra = near * share,
                      .sent_inter = far * share,
                      .received_intra = near * share,
                      .received_inter = far * share};
    transfer.messages_intra = near * messages;
    transfer.messages_inter = far * messages;
    return seconds_alone(transfer, plan.options.links, 0);
  };
  return half(segments) + half(1);
}

void add_tp_sums(const Plan& plan, const Workload& workload,
                 std::vector<PassSeconds>& modules) {
  const double sum = tp_sum_seconds(plan, workload);
  if (sum == 0) return;
  for (size_t m = 0; m < modules.size(); ++m) {
    const bool is_head = m + 1 == modules.size();
    const bool is_layer = m > 0 && !is_head;
    const double forward = is_layer ? 2 * sum : is_head ? 0 : sum;
    const double backward = is_layer ? 2 * sum : is_head ? sum : 0;
    modules[m].forward += forward;
    modules[m].backward += backward;
    if (workload.compute.recompute && is_layer) modules[m].backward += forward;
  }
}

}  // namespace canzona
