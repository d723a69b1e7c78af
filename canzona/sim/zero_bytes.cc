#include "canzona/sim/zero_bytes.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/iteration.h"

namespace canzona {
PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank) {
  PurposeBytes out;
  const auto of_cost = [&](Collective collective) {
    return cost.wire[static_cast<size_t>(collective)];
  };
  if (!is_plain(plan.options.zero, plan.mesh.homes())) {
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    const int32_t stage = coordinates_of(plan.mesh, rank).stage;
    for (const ModuleUse& use : uses_of(usual_calls(plan, stage, 1))) {
      const PurposeBytes& module = modules[index(use.module)];
      of(out, Purpose::kGatherModule) += of(module, Purpose::kGatherModule);
      if (!use.completes()) continue;
      for (const Purpose p : {Purpose::kScatterModule, Purpose::kSumReplicas})
        of(out, p) += of(module, p);
    }
  }
  // These include the sums over replicas, which are counted separately.
  of(out, Purpose::kSum) =
      of_cost(Collective::kReduceScatter) + of_cost(Collective::kAllReduce);
  of(out, Purpose::kSum).add(of(out, Purpose::kSumReplicas), -1);
  of(out, Purpose::kGatherMatrices) = of_cost(Collective::kGather);
  of(out, Purpose::kScatterMatrices) = of_cost(Collective::kScatter);
  of(out, Purpose::kPublish) =
      of_cost(Collective::kAllGather) + of_cost(Collective::kBroadcast);
  return out;
}

WireBytes ZeroOperation::of(const PurposeBytes& bytes) const {
  WireBytes sum;
  for (const Purpose purpose : purposes) sum += canzona::of(bytes, purpose);
  return sum;
}

const std::vector<ZeroOperation>& zero_operations() {
  static const std::vector<ZeroOperation> operations = {
      {"gather parameters", "gather", "micro-batch", {Purpose::kGatherModule}},
      {"scatter gradients",
       "scatter",
       "micro-batch",
       {Purpose::kScatterModule}},
      {"gradients to homes", "reduce", "step", {Purpose::kSum}},
      {"sum over replicas", "replicas", "step", {Purpose::kSumReplicas}},
      {"matrices to owners, back",
       "exchange",
       "step",
       {Purpose::kGatherMatrices, Purpose::kScatterMatrices}},
      {"new parameters", "publish", "step", {Purpose::kPublish}},
  };
  return operations;
}

bool crosses_nodes(const PlanPart& part, int32_t z) {
  const Mesh& mesh = part.mesh;
  for (int32_t stage = 0; stage < mesh.pp; ++stage)
    for (int32_t home = 0; home < mesh.homes(); home += z)
      for (int32_t t = 0; t < mesh.tp; ++t)
        if (part.node_of(mesh.rank(stage, home, t)) !=
            part.node_of(mesh.rank(stage, home + z - 1, t)))
          return true;
  return false;
}

bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::*z) {
  return std::ranges::any_of(plan.parts, [&](const PlanPart& part) {
    return crosses_nodes(part, part.options.zero.sizes.*z);
  });
}

}  // namespace canzona
