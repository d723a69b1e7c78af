#include "canzona/measure/planned_bytes.h"

#include <algorithm>
#include <map>

#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/module_bytes.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/train/schedule_1f1b.h"
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

// Of one rank: those of the schedule's entries.
WireBytes step_bytes_of(const Plan& plan, int32_t rank, GradientWire wire) {
  std::map<int32_t, int32_t> rank_in;  // by part
  for (const RankInPart& at : parts_of_rank(plan, rank))
    rank_in[at.part] = at.rank;
  const TrainerCall step{.kind = TrainerCall::Kind::kStep};
  WireBytes bytes;
  for (const ScheduleEntry& entry : iteration_of(plan, rank, {&step, 1}))
    bytes += wire_bytes_of(plan.parts[static_cast<size_t>(entry.part)],
                           rank_in[entry.part], entry, bytes_of(wire));
  return bytes;
}

// A module's gradients are scattered, never gathered again. In two levels sums
// of a node are fp32.
WireBytes scattered(const WireBytes& bytes, GradientWire wire,
                    bool two_levels) {
  const auto share = [&](int64_t all, bool narrow) {
    return narrow ? all / kBytesPerFp32 * bytes_of(wire) : all;
  };
  return {share(bytes.sent_intra, true), share(bytes.sent_inter, !two_levels),
          share(bytes.received_intra, true),
          share(bytes.received_inter, !two_levels)};
}

// The bytes that a rank scatters of each module in a micro-batch.
std::vector<WireBytes> scattered_modules(const Plan& plan, int32_t rank,
                                         GradientWire wire) {
  std::vector<WireBytes> out(static_cast<size_t>(num_modules(plan.model)));
  for (const RankInPart& at : parts_of_rank(plan, rank)) {
    const PlanPart& part = plan.parts[static_cast<size_t>(at.part)];
    const bool two_levels =
        levels_of(part, at.rank, GroupKind::kGradients).across > 1;
    const std::vector<PurposeBytes> own = module_bytes(part, at.rank);
    for (size_t m = 0; m < out.size(); ++m)
      out[m] +=
          scattered(of(own[m], Purpose::kScatterModule), wire, two_levels);
  }
  return out;
}

}  // namespace

std::vector<WireBytes> step_bytes(const Plan& plan,
                                  const std::vector<RankCost>& costs,
                                  GradientWire wire) {
  std::vector<WireBytes> ranks(costs.size());
  for (size_t r = 0; r < ranks.size(); ++r)
    if (wire != GradientWire::kFp32)
      ranks[r] = step_bytes_of(plan, static_cast<int32_t>(r), wire);
    else
      for (const WireBytes& bytes : costs[r].wire) ranks[r] += bytes;
  return ranks;
}

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
  const GradientWire wire = settings.runtime.wire;
  PlannedBytes out;
  out.ranks = step_bytes(plan, predict(plan), wire);
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const StageUses uses =
        uses_of(settings, plan.mesh, coordinates_of(plan.mesh, rank).stage);
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    const auto gather = [&](int32_t module) {
      return of(modules[static_cast<size_t>(module)], Purpose::kGatherModule);
    };
    const std::vector<WireBytes> scattered =
        scattered_modules(plan, rank, wire);
    const auto scatter = [&](int32_t module) {
      return scattered[static_cast<size_t>(module)];
    };
    WireBytes& bytes = out.ranks[static_cast<size_t>(rank)];
    WireBytes edge;
    for (const int32_t module : uses.modules) bytes += gather(module);
    for (int32_t module = 0; module < std::ssize(modules); ++module)
      bytes.add(scatter(module), uses.num_announcements);
    const int32_t first = uses.modules.front();
    for (int32_t module = first; module <= std::max(first, 1); ++module)
      edge += gather(module) + scatter(module);
    out.edges.push_back(edge);
  }
  return out;
}

}  // namespace canzona
