#include "canzona/sim/cluster_prediction.h"

#include <algorithm>
#include <cmath>

#include "canzona/plan/predict/summary.h"

namespace canzona {
namespace {

// Returns the flops of forward and backward of one micro-batch on one
// data-parallel rank.
double flops_of_micro_batch(const Plan& plan, const Workload& workload) {
  ComputeLoad load = workload.compute;
  load.flops_per_second = 1;
  load.tensor_parallel = 1;
  load.recompute = false;
  double flops = 0;
  for (const PassSeconds& passes : compute_seconds(plan.model, load))
    flops += passes.forward + passes.backward;
  return flops;
}

}  // namespace

int64_t ClusterPrediction::memory_bytes() const {
  int64_t most = 0;
  for (const IterationPrediction& kind : kinds)
    most = std::max(most, kind.memory_bytes);
  return most;
}

ClusterPrediction predict_cluster(const Plan& plan, const Workload& workload) {
  ClusterPrediction out;
  out.kinds = predict_stages(plan, workload);
  for (size_t k = 1; k < out.kinds.size(); ++k)
    if (out.kinds[k].time.seconds > out.kinds[out.slowest].time.seconds)
      out.slowest = k;
  const Mesh& mesh = plan.mesh;
  const auto batches = static_cast<double>(workload.num_micro_batches);
  const double on_ranks = batches * mesh.homes();
  out.tokens = on_ranks * static_cast<double>(workload.compute.tokens);
  out.model_flops = on_ranks * flops_of_micro_batch(plan, workload);
  out.ranks = mesh.world();
  out.card_flops = workload.compute.flops_per_second;
  out.slowest_card = slowest_of(mesh.world(), workload.spread.compute);
  out.longest_batch = slowest_of(mesh.dp * mesh.ep,
                                 workload.spread.length / std::sqrt(batches));
  return out;
}

Plan at_rate(Plan plan, double flops_per_second) {
  plan.cost_basis.seconds_per_tick = 1 / flops_per_second;
  for (PlanPart& part : plan.parts)
    part.cost_basis.seconds_per_tick = 1 / flops_per_second;
  summarize(plan);
  return plan;
}

}  // namespace canzona
