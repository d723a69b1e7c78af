#include "canzona/sim/model_exchanges.h"

#include <algorithm>
#include <set>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/sim/transfer.h"

namespace canzona {
namespace {

// The time of one message of `bytes` each way between `rank` and each peer.
double exchange_seconds(const Plan& plan, const Workload& workload,
                        int32_t rank, const std::vector<int32_t>& peers,
                        int64_t bytes) {
  Transfer transfer;
  PeersByLevel by_level(workload.levels.size(), 0);
  for (const int32_t peer : peers) {
    const bool near =
        node_of(plan.options, peer) == node_of(plan.options, rank);
    ++(near ? transfer.messages_intra : transfer.messages_inter);
    if (!workload.levels.empty())
      ++by_level[level_of(workload.levels, rank, peer)];
  }
  WireBytes& all = transfer.bytes;
  all.sent_intra = all.received_intra = transfer.messages_intra * bytes;
  all.sent_inter = all.received_inter = transfer.messages_inter * bytes;
  const FarLinks far = far_links(workload.levels, by_level);
  transfer.far_scale = far.scale;
  transfer.added_latency_seconds = far.added_latency_seconds;
  return seconds_alone(transfer, plan.options.links, 0);
}

int64_t activation_row_bytes(const Workload& workload) {
  return workload.compute.tokens * workload.hidden *
         workload.bytes_per_activation;
}

std::set<int32_t> modules_of_experts(const Model& model) {
  std::set<int32_t> modules;
  for (const Tensor& tensor : model.tensors)
    if (tensor.expert >= 0) modules.insert(module_of(model, tensor));
  return modules;
}

}  // namespace

double token_exchange_seconds(const Plan& plan, const Workload& workload) {
  const Mesh& mesh = plan.mesh;
  if (mesh.ep == 1 || workload.hidden == 0) return 0;
  std::vector<int32_t> peers;
  for (int32_t e = 1; e < mesh.ep; ++e)
    peers.push_back(mesh.rank(0, mesh.home_of_expert(0, e), 0));
  const int64_t visits =
      std::max<int64_t>(1, workload.compute.experts_per_token);
  return exchange_seconds(plan, workload, 0, peers,
                          visits * activation_row_bytes(workload) / mesh.ep);
}

void add_token_exchanges(const Plan& plan, const Workload& workload,
                         std::vector<PassSeconds>& modules) {
  const double once = token_exchange_seconds(plan, workload);
  if (once == 0) return;
  for (const int32_t m : modules_of_experts(plan.model)) {
    modules[index(m)].forward += 2 * once;
    modules[index(m)].backward += (workload.compute.recompute ? 4 : 2) * once;
  }
}

double stage_send_seconds(const Plan& plan, const Workload& workload) {
  const Mesh& mesh = plan.mesh;
  if (mesh.pp == 1 || workload.hidden == 0) return 0;
  // Checks the borders of all stages, since the last ranks of a stage may be on
  // other nodes than the first.
  double slowest = 0;
  for (int32_t stage = 0; stage + 1 < mesh.pp; ++stage)
    for (const int32_t at : {0, mesh.ranks_per_stage() - 1}) {
      const int32_t rank = stage * mesh.ranks_per_stage() + at;
      slowest =
          std::max(slowest, exchange_seconds(plan, workload, rank,
                                             {rank + mesh.ranks_per_stage()},
                                             activation_row_bytes(workload)));
    }
  return slowest;
}

double exposed_sends(const Plan& plan, const Workload& workload) {
  return stage_send_seconds(plan, workload) * (plan.mesh.pp - 1) / plan.mesh.pp;
}

}  // namespace canzona
