#include "canzona/sim/zero_bytes.h"

#include <algorithm>

#include "canzona/plan/predict/predict_zero.h"

namespace canzona {
namespace {

const WireBytes& of(const RankCost& cost, Collective collective) {
  return cost.wire[static_cast<size_t>(collective)];
}

// Forward and backward; a tied head reads the embedding in both of its own.
int64_t uses_of(const Plan& plan, size_t module) {
  return module == 0 ? 2 * slots_at_once(plan) : 2;
}

}  // namespace

void add_bytes(WireBytes& sum, const WireBytes& more, int64_t times) {
  sum.sent_intra += times * more.sent_intra;
  sum.sent_inter += times * more.sent_inter;
  sum.received_intra += times * more.received_intra;
  sum.received_inter += times * more.received_inter;
}

WireBytes ZeroBytes::iteration(int64_t micro_batches) const {
  WireBytes sum;
  add_bytes(sum, gather, micro_batches);
  add_bytes(sum, scatter, micro_batches);
  for (const WireBytes& once : {reduce, replicas, exchange, publish})
    add_bytes(sum, once);
  return sum;
}

ZeroBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank) {
  ZeroBytes out;
  if (!is_plain(plan.options.zero, plan.mesh.homes())) {
    const std::vector<ModuleWire> modules = module_wire(plan, rank);
    for (size_t m = 0; m < modules.size(); ++m) {
      add_bytes(out.gather, modules[m].gather, uses_of(plan, m));
      add_bytes(out.scatter, modules[m].scatter);
      add_bytes(out.replicas, modules[m].replicas);
    }
  }
  // What is summed everywhere is summed over replicas, too.
  add_bytes(out.reduce, of(cost, Collective::kReduceScatter));
  add_bytes(out.reduce, of(cost, Collective::kAllReduce));
  add_bytes(out.reduce, out.replicas, -1);
  add_bytes(out.exchange, of(cost, Collective::kGather));
  add_bytes(out.exchange, of(cost, Collective::kScatter));
  add_bytes(out.publish, of(cost, Collective::kAllGather));
  add_bytes(out.publish, of(cost, Collective::kBroadcast));
  return out;
}

const std::vector<ZeroOperation>& zero_operations() {
  static const std::vector<ZeroOperation> operations = {
      {"gather parameters", "gather", "micro-batch", &ZeroBytes::gather},
      {"scatter gradients", "scatter", "micro-batch", &ZeroBytes::scatter},
      {"gradients to homes", "reduce", "step", &ZeroBytes::reduce},
      {"sum over replicas", "replicas", "step", &ZeroBytes::replicas},
      {"matrices to owners, back", "exchange", "step", &ZeroBytes::exchange},
      {"new parameters", "publish", "step", &ZeroBytes::publish},
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
    const WireBytes own = zero_bytes(plan, ranks[r], static_cast<int32_t>(r))
                              .iteration(micro_batches);
    most.sent_intra = std::max(most.sent_intra, own.sent_intra);
    most.sent_inter = std::max(most.sent_inter, own.sent_inter);
    most.received_intra = std::max(most.received_intra, own.received_intra);
    most.received_inter = std::max(most.received_inter, own.received_inter);
  }
  return most;
}

}  // namespace canzona
