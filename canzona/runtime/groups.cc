#include "canzona/runtime/groups.h"

#include "canzona/base/text.h"
#include "canzona/plan/legs.h"
#include "canzona/plan/sum_order.h"

namespace canzona {
namespace {

// Among all data-parallel ranks of its stage and tp rank.
struct Stand {
  Stand(const PlanPart& plan, int32_t world_rank) {
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

// z consecutive homes, in one leg or two. All ranks of the world call it.
std::unique_ptr<NodeGroup> found_group(Communicator& world,
                                       const PlanPart& plan, int32_t z,
                                       const std::string& name,
                                       const WireOps& ops) {
  const Stand at(plan, world.rank());
  if (plan.options.zero.reach == Reach::kDirect)
    return std::make_unique<NodeGroup>(
        world.split(at.color(at.home / z), at.home, name, {}, &ops), nullptr,
        ops);
  const Legs legs = module_legs(plan, world.rank(), z);
  const int32_t first = at.home / z * z;
  const int32_t place = at.home % z % legs.inside;
  auto inside = world.split(at.color(at.home - place), at.home,
                            name + " inside a node", {}, &ops);
  auto across = world.split(legs.across > 1 ? at.color(first + place) : -1,
                            at.home, name + " across nodes", {}, &ops);
  return std::make_unique<NodeGroup>(std::move(inside), std::move(across), ops);
}

}  // namespace

Groups::Groups(Communicator& world, const PlanPart& plan, const WireOps& ops,
               int capacity, const AddTrack& add_track,
               const std::string& prefix) {
  const Mesh& mesh = plan.mesh;
  const int32_t rank = world.rank();
  const RankPlace me = place_of(mesh, rank);
  const Stand at(plan, rank);
  const ZeroSizes& zero = plan.options.zero.sizes;
  const int32_t z1 = zero.z1, z2 = zero.z2, z3 = zero.z3;
  control_ = world.split(0, rank, prefix + "control");
  const auto add = [&](Line& line, int32_t color, int32_t key,
                       const char* kind) {
    line.group =
        world.split(color, key, cat(prefix, kind, " ", color), {}, &ops);
    line.courier =
        std::make_unique<Courier>(*line.group, capacity, add_track(kind));
  };
  const auto circle = [&](int32_t z) {
    return at.color(at.home / z1 * z + at.home % z);
  };
  add(dense_, circle(z2), at.home, "data");
  if (mesh.ep > 1)
    add(experts_, at.line * mesh.ep + me.ep, me.expert_home, "experts");
  if (z2 != z3) add(publish_, circle(z3), at.home, "publish");
  found_modules(world, plan, ops, prefix);
  if (plan.grid.tp == 1) return;
  const int32_t home = rank / plan.grid.tp;
  add(gather_, home, rank % plan.grid.tp, "gather");
  add(scatter_, home, rank % plan.grid.tp, "scatter");
  gather_.group->count_links(exchange_use_);
  scatter_.group->count_links(exchange_use_);
}

void Groups::found_modules(Communicator& world, const PlanPart& plan,
                           const WireOps& ops, const std::string& prefix) {
  const ZeroSizes& zero = plan.options.zero.sizes;
  const int32_t z1 = zero.z1, z2 = zero.z2, z3 = zero.z3;
  const Stand at(plan, world.rank());
  const bool everywhere =
      plan.options.zero.replica_sum == ReplicaSum::kAllReduce;
  if (plan.num_replicas() > 1 || everywhere)
    replicas_ = world.split(at.color(at.home % (everywhere ? z2 : z1)), at.home,
                            prefix + "replicas", {}, &ops);
  if (adds_replicas_at_once(plan))
    all_groups_ = world.split(at.color(at.home % z2), at.home,
                              prefix + "all groups", {}, &ops);
  if (z3 > 1)
    parameters_ = found_group(world, plan, z3, prefix + "parameters", ops);
  if (z2 > 1)
    gradients_ = found_group(world, plan, z2, prefix + "gradients", ops);
}

Groups::Sent& Groups::Sent::operator+=(const Sent& other) {
  reduce_scatter += other.reduce_scatter;
  all_reduce += other.all_reduce;
  gather += other.gather;
  scatter += other.scatter;
  all_gather += other.all_gather;
  broadcast += other.broadcast;
  parameter_gather += other.parameter_gather;
  gradient_scatter += other.gradient_scatter;
  return *this;
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
  sent.reduce_scatter += of(all_groups_, Operation::kReduceScatter);
  sent.all_reduce += of(all_groups_, Operation::kAllReduce);
  sent.all_reduce += of(replicas_, Operation::kAllReduce);
  sent.all_reduce += of(replicas_, Operation::kAllGather);
  sent.gather = of(gather_.group, Operation::kAllToAll);
  sent.scatter = of(scatter_.group, Operation::kAllToAll);
  if (parameters_ != nullptr)
    sent.parameter_gather = parameters_->traffic(Operation::kAllGather).*bytes;
  if (gradients_ != nullptr)
    sent.gradient_scatter =
        gradients_->traffic(Operation::kReduceScatter).*bytes;
  return sent;
}

}  // namespace canzona
