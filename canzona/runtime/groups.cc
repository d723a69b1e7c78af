#include "canzona/runtime/groups.h"

#include "canzona/base/text.h"

namespace canzona {
namespace {

// Among all data-parallel ranks of its stage and tp rank.
struct Stand {
  Stand(const Plan& plan, int32_t world_rank) {
    const RankPlace me = place_of(plan.mesh, world_rank);
    line = me.stage * plan.mesh.tp + me.t;
    home = me.home;
    num_homes = plan.mesh.homes();
  }
  // A number for every group of those with the same `part`.
  int32_t color(int32_t part) const { return line * num_homes + part; }

  int32_t line = 0;
  int32_t home = 0;
  int32_t num_homes = 1;
};

}  // namespace

Groups::Groups(Communicator& world, const Plan& plan, const WireOps& ops,
               int capacity, Trace* trace) {
  const Mesh& mesh = plan.mesh;
  const int32_t rank = world.rank();
  const RankPlace me = place_of(mesh, rank);
  const Stand at(plan, rank);
  const auto [z1, z2, z3] = plan.options.zero.sizes;
  control_ = world.split(0, rank, "control");
  const auto add = [&](Line& line, int32_t color, int32_t key,
                       const char* kind) {
    line.group = world.split(color, key, cat(kind, " ", color), {}, &ops);
    Track* track = trace == nullptr ? nullptr : trace->add_track(rank, kind);
    line.courier = std::make_unique<Courier>(*line.group, capacity, track);
  };
  const auto circle = [&](int32_t z) {
    return at.color(at.home / z1 * z + at.home % z);
  };
  add(dense_, circle(z2), at.home, "data");
  if (mesh.ep > 1)
    add(experts_, at.line * mesh.ep + me.ep, me.expert_home, "experts");
  if (z2 != z3) add(publish_, circle(z3), at.home, "publish");
  found_modules(world, plan, ops);
  if (plan.grid.tp == 1) return;
  const int32_t home = rank / plan.grid.tp;
  add(gather_, home, rank % plan.grid.tp, "gather");
  add(scatter_, home, rank % plan.grid.tp, "scatter");
  gather_.group->count_links(exchange_use_);
  scatter_.group->count_links(exchange_use_);
}

void Groups::found_modules(Communicator& world, const Plan& plan,
                           const WireOps& ops) {
  const auto [z1, z2, z3] = plan.options.zero.sizes;
  const Stand at(plan, world.rank());
  const bool everywhere =
      plan.options.zero.replica_sum == ReplicaSum::kAllReduce;
  if (plan.num_replicas() > 1)
    replica_ =
        world.split(plan.replica_of(world.rank()), world.rank(), "replica");
  if (plan.num_replicas() > 1 || everywhere)
    replicas_ = world.split(at.color(at.home % (everywhere ? z2 : z1)), at.home,
                            "replicas", {}, &ops);
  if (z3 > 1)
    parameters_ =
        world.split(at.color(at.home / z3), at.home, "parameters", {}, &ops);
  if (z2 > 1)
    gradients_ =
        world.split(at.color(at.home / z2), at.home, "gradients", {}, &ops);
}

void Groups::close() {
  for (Line* line : {&dense_, &experts_, &publish_, &gather_, &scatter_})
    line->courier.reset();
}

std::chrono::nanoseconds Groups::busy() const {
  std::chrono::nanoseconds busy{0};
  for (const Line* line : {&dense_, &experts_, &publish_, &gather_, &scatter_})
    if (line->courier != nullptr) busy += line->courier->busy();
  return busy;
}

std::chrono::nanoseconds Groups::exchange_busy() const {
  if (has_links()) return control_->busy_of(exchange_use_);
  std::chrono::nanoseconds busy{0};
  for (const Line* line : {&gather_, &scatter_})
    if (line->courier != nullptr) busy += line->courier->busy();
  return busy;
}

Groups::Sent Groups::count(int64_t TrafficLog::Row::*bytes) const {
  const auto of = [&](const std::unique_ptr<Communicator>& group,
                      Operation operation) {
    return group == nullptr ? 0 : group->traffic().of(operation).*bytes;
  };
  Sent sent;
  for (const Line* line : {&dense_, &experts_, &publish_}) {
    sent.reduce_scatter += of(line->group, Operation::kReduceScatter);
    sent.all_reduce += of(line->group, Operation::kAllReduce);
    sent.all_gather += of(line->group, Operation::kAllGather);
    sent.broadcast += of(line->group, Operation::kBroadcast);
  }
  sent.all_reduce += of(replicas_, Operation::kAllReduce);
  sent.gather = of(gather_.group, Operation::kAllToAll);
  sent.scatter = of(scatter_.group, Operation::kAllToAll);
  sent.parameter_gather = of(parameters_, Operation::kAllGather);
  sent.gradient_scatter = of(gradients_, Operation::kReduceScatter);
  return sent;
}

}  // namespace canzona
