#include "canzona/measure/planned_bytes.h"

#include <algorithm>

#include "canzona/plan/schedule/module_bytes.h"
#include "canzona/train/module_uses.h"
#include "canzona/train/stage.h"

namespace canzona {
namespace {

// What a stage does in a step.
struct StageUses {
  std::vector<int32_t> modules;  // in order
  int64_t num_announcements = 0;
};

StageUses uses_of(const TrainSettings& settings, const Mesh& mesh,
                  int32_t stage) {
  const Architecture& architecture = settings.decoder.architecture;
  const auto layers = static_cast<int32_t>(architecture.layers);
  const StageModules modules{.first_layer = layers / mesh.pp * stage,
                             .num_layers = layers / mesh.pp,
                             .layers_of_model = layers,
                             .has_embedding = stage == 0,
                             .has_head = stage == mesh.pp - 1,
                             .tied = architecture.tied};
  const std::vector<StageTask> tasks = tasks_of(settings, mesh, stage);
  return {module_uses(modules, tasks), num_announcements(tasks)};
}

double port_seconds(const WireBytes& bytes, const LinkModel& link) {
  const auto most = [](int64_t a, int64_t b) {
    return static_cast<double>(std::max(a, b));
  };
  return std::max(most(bytes.sent_intra, bytes.received_intra) /
                      link.intra_bytes_per_second,
                  most(bytes.sent_inter, bytes.received_inter) /
                      link.inter_bytes_per_second);
}

double slowest_port(const std::vector<WireBytes>& ranks,
                    const LinkModel& link) {
  double most = 0;
  for (const WireBytes& rank : ranks)
    most = std::max(most, port_seconds(rank, link));
  return most;
}

}  // namespace

int64_t PlannedBytes::most_sent() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent());
  return most;
}

int64_t PlannedBytes::most_slow() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent_inter);
  return most;
}

double PlannedBytes::seconds(const LinkModel& link) const {
  return slowest_port(ranks, link);
}
double PlannedBytes::edge_seconds(const LinkModel& link) const {
  return slowest_port(edges, link);
}

PlannedBytes planned_bytes(const TrainSettings& settings, const Plan& plan) {
  const std::vector<RankCost> costs = predict(plan);
  PlannedBytes out;
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const StageUses uses =
        uses_of(settings, plan.mesh, rank / plan.mesh.ranks_per_stage());
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    const auto gather = [&](int32_t module) {
      return of(modules[static_cast<size_t>(module)], Purpose::kGatherModule);
    };
    const auto scatter = [&](int32_t module) {
      return of(modules[static_cast<size_t>(module)], Purpose::kScatterModule);
    };
    WireBytes bytes, edge;
    for (const WireBytes& wire : costs[static_cast<size_t>(rank)].wire)
      bytes += wire;
    for (const int32_t module : uses.modules) bytes += gather(module);
    for (int32_t module = 0; module < std::ssize(modules); ++module)
      bytes.add(scatter(module), uses.num_announcements);
    const int32_t first = uses.modules.front();
    for (int32_t module = first; module <= std::max(first, 1); ++module)
      edge += gather(module) + scatter(module);
    out.ranks.push_back(bytes);
    out.edges.push_back(edge);
  }
  return out;
}

}  // namespace canzona
