#include "canzona/sim/zero_bytes.h"

#include <algorithm>
#include <string_view>

#include "canzona/plan/schedule/pools.h"

namespace canzona {
namespace {

// Forward and backward; a tied head reads the embedding in both of its own.
int64_t uses_of(const Plan& plan, size_t module) {
  return module == 0 ? 2 * slots_at_once(plan) : 2;
}

}  // namespace

WireBytes iteration_bytes(const PurposeBytes& bytes, int64_t micro_batches) {
  WireBytes sum;
  for (const ZeroOperation& operation : zero_operations()) {
    const bool often = operation.when == std::string_view("micro-batch");
    sum.add(operation.of(bytes), often ? micro_batches : 1);
  }
  return sum;
}

PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank) {
  PurposeBytes out;
  const auto of_cost = [&](Collective collective) {
    return cost.wire[static_cast<size_t>(collective)];
  };
  if (!is_plain(plan.options.zero, plan.mesh.homes())) {
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    for (size_t m = 0; m < modules.size(); ++m)
      for (const Purpose p : {Purpose::kGatherModule, Purpose::kScatterModule,
                              Purpose::kSumReplicas})
        of(out, p).add(of(modules[m], p),
                       p == Purpose::kGatherModule ? uses_of(plan, m) : 1);
  }
  // Sums that go everywhere go over replicas, too.
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

WireBytes most_iteration_bytes(const Plan& plan,
                               const std::vector<RankCost>& ranks,
                               int64_t micro_batches) {
  WireBytes most;
  for (size_t r = 0; r < ranks.size(); ++r) {
    most = largest(most, iteration_bytes(zero_bytes(plan, ranks[r],
                                                    static_cast<int32_t>(r)),
                                         micro_batches));
  }
  return most;
}

}  // namespace canzona
