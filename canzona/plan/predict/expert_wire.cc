#include "canzona/plan/predict/expert_wire.h"

#include <functional>

#include "canzona/plan/predict/peers.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/runs.h"

namespace canzona {

ModuleWire expert_wire(const PlanPart& plan, const Bucket& bucket,
                       int32_t world_rank) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
  const Coordinates at = coordinates_of(plan.mesh, world_rank);
  if (!at.holds(buffer)) return {};
  const RankGroup group = group_of(plan, world_rank, GroupKind::kExperts);
  const auto among = [&](const std::function<int64_t(int64_t)>& run_of) {
    Peers peers(plan, world_rank);
    for (int32_t h = 0; h < group.count; ++h)
      peers.add(group.rank(h), run_of(h));
    return peers;
  };
  const std::vector<int64_t> matrices = matrix_runs(plan, bucket, 0);
  const std::vector<int64_t> others = adamw_runs(plan, bucket, 0);
  const Peers runs = among([&](int64_t h) {
    return matrices[static_cast<size_t>(h)] + others[static_cast<size_t>(h)];
  });
  ModuleWire out;
  if (plan.traffic != Traffic::kAllReduce)
    out.publish = runs.all_gather(bytes_per_parameter(plan));
  if (is_scattered(plan.traffic)) {
    out.reduce = runs.reduce_scatter(kBytesPerFp32);
    return out;
  }
  const int64_t all = kept_elements(plan, bucket, 0, Resting::kGradients);
  const Peers shares = among([&](int64_t h) {
    return all * (h + 1) / buffer.num_homes - all * h / buffer.num_homes;
  });
  out.reduce = shares.reduce_scatter(kBytesPerFp32);
  out.reduce += shares.all_gather(kBytesPerFp32);
  return out;
}

}  // namespace canzona
