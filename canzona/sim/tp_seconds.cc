#include "canzona/sim/tp_seconds.h"

#include "canzona/plan/schedule/coordinates.h"
#include "canzona/sim/transfer.h"

namespace canzona {

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
