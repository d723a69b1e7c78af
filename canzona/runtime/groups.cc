#include "canzona/runtime/groups.h"

#include "canzona/base/text.h"

namespace canzona {

Groups::Groups(Communicator& world, const Plan& plan, const RankPlace& place,
               const WireOps& ops, int capacity, Trace* trace) {
  const Mesh& mesh = plan.grid;
  const int32_t plane = place.stage * mesh.tp + place.t;
  const int32_t home = place.stage * mesh.homes() + place.home;
  control_ = world.split(0, place.rank, "control");
  const auto add = [&](Line& line, int32_t color, int32_t key,
                       const char* kind) {
    line.group = world.split(color, key, cat(kind, " ", color), {}, &ops);
    Track* track =
        trace == nullptr ? nullptr : trace->add_track(place.rank, kind);
    line.courier = std::make_unique<Courier>(*line.group, capacity, track);
  };
  add(dense_, plane, place.home, "data");
  if (mesh.ep > 1)
    add(experts_, plane * mesh.ep + place.ep, place.expert_home, "experts");
  if (mesh.tp == 1) return;
  add(gather_, home, place.t, "gather");
  add(scatter_, home, place.t, "scatter");
}

void Groups::close() {
  for (Line* line : {&dense_, &experts_, &gather_, &scatter_})
    line->courier.reset();
}

std::chrono::nanoseconds Groups::busy() const {
  std::chrono::nanoseconds busy{0};
  for (const Line* line : {&dense_, &experts_, &gather_, &scatter_})
    if (line->courier != nullptr) busy += line->courier->busy();
  return busy;
}

Groups::Sent Groups::sent() const {
  Sent sent;
  for (const Line* line : {&dense_, &experts_}) {
    if (line->group == nullptr) continue;
    const TrafficLog& log = line->group->traffic();
    sent.reduce_scatter += log.of(Operation::kReduceScatter).sent;
    sent.all_reduce += log.of(Operation::kAllReduce).sent;
    sent.all_gather += log.of(Operation::kAllGather).sent;
    sent.broadcast += log.of(Operation::kBroadcast).sent;
  }
  if (gather_.group == nullptr) return sent;
  sent.gather = gather_.group->traffic().of(Operation::kAllToAll).sent;
  sent.scatter = scatter_.group->traffic().of(Operation::kAllToAll).sent;
  return sent;
}

}  // namespace canzona
