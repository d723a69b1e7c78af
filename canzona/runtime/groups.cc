#include "canzona/runtime/groups.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {
using namespace runtime;
namespace {

// Splits off the ranks with this color. All ranks of `world`, which are those
// of the part, must call it.
std::unique_ptr<Communicator> found(Communicator& world, int color,
                                    const std::string& name, const WireOps& ops,
                                    const std::shared_ptr<Lane>& lane) {
  if (lane != nullptr)
    return world.split_ordered(color, world.rank(), name, lane);
  return world.split(color, world.rank(), name, {}, &ops);
}

// Makes a group, direct or hierarchical.
std::unique_ptr<NodeGroup> found_levels(Communicator& world,
                                        const PlanPart& part, GroupKind kind,
                                        const std::string& name,
                                        const WireOps& ops,
                                        const std::shared_ptr<Lane>& lane) {
  const RankGroup group = group_of(part, world.rank(), kind);
  const WireOps& moved_by = lane == nullptr ? ops : lane->ops();
  const bool direct = part.options.zero.reach == Reach::kDirect;
  if (direct || !has_levels(part, kind))
    return std::make_unique<NodeGroup>(
        found(world, group.first, name, ops, lane), nullptr, moved_by);
  const Levels levels = levels_of(part, group);
  auto inside = found(world, inside_level(group, levels, world.rank()).first,
                      name + " inside a node", ops, lane);
  const RankGroup across = across_level(group, levels, world.rank());
  auto beyond = found(world, levels.across > 1 ? across.first : -1,
                      name + " across nodes", ops, lane);
  return std::make_unique<NodeGroup>(std::move(inside), std::move(beyond),
                                     moved_by);
}

}  // namespace

Groups::Groups(Communicator& world, const PlanPart& part, const WireOps& ops,
               const GroupLanes& lanes, int capacity, const AddTrack& add_track,
               const std::string& prefix)
    : lanes_(lanes) {
  const int32_t rank = world.rank();
  const auto add = [&](Line& line, GroupKind kind, const char* name,
                       const std::shared_ptr<Lane>& lane) {
    if (!has_groups(part, kind)) return;
    const RankGroup group = group_of(part, rank, kind);
    line.group = found_levels(world, part, kind,
                              cat(prefix, name, " ", group.first), ops, lane);
    line.courier = std::make_unique<Courier>(line.group->inside(), capacity,
                                             add_track(name, lane.get()));
  };
  control_ = world.split(0, rank, prefix + "control");
  add(dense_, GroupKind::kSums, "data", lanes.gradients);
  add(experts_, GroupKind::kExperts, "experts", lanes.gradients);
  add(publish_, GroupKind::kPublish, "publish", lanes.parameters);
  found_modules(world, part, ops, prefix);
  add(gather_, GroupKind::kExchange, "gather", lanes.parameters);
  add(scatter_, GroupKind::kExchange, "scatter", lanes.gradients);
  if (has_strips_shared(part))
    add(teams_, GroupKind::kExchange, "teams", lanes.gradients);
  if (lanes.gradients != nullptr) {
    check_.group = std::make_unique<NodeGroup>(
        found(world, 0, prefix + "check", ops, lanes.gradients), nullptr,
        lanes.gradients->ops());
    check_.courier = std::make_unique<Courier>(
        check_.group->inside(), 2, add_track("check", lanes.gradients.get()));
  }
  if (gather_.group == nullptr) return;
  gather_.group->inside().count_links(exchange_use_);
  scatter_.group->inside().count_links(exchange_use_);
  if (teams_.group != nullptr)
    teams_.group->inside().count_links(exchange_use_);
}

void Groups::found_modules(Communicator& world, const PlanPart& part,
                           const WireOps& ops, const std::string& prefix) {
  const auto group = [&](GroupKind kind, const char* name,
                         const std::shared_ptr<Lane>& lane) {
    return has_groups(part, kind)
               ? found_levels(world, part, kind, prefix + name, ops, lane)
               : nullptr;
  };
  replicas_ = group(GroupKind::kReplicas, "replicas", lanes_.gradients);
  all_groups_ = group(GroupKind::kAllGroups, "all groups", lanes_.gradients);
  parameters_ = group(GroupKind::kParameters, "parameters", lanes_.parameters);
  gradients_ = group(GroupKind::kGradients, "gradients", lanes_.gradients);
}

// Gather slots are assigned in the same order on all ranks; the slots that
// gradients are added into are not.
void Groups::register_memory(const GroupMemory& memory) {
  const auto add = [](const std::unique_ptr<NodeGroup>& group,
                      std::span<std::byte> bytes, bool alike) {
    if (group != nullptr) group->register_memory(bytes, {.same_places = alike});
  };
  for (const auto* group :
       {&dense_.group, &experts_.group, &replicas_, &all_groups_})
    add(*group, memory.gradients, memory.gradients_alike);
  // If all slices are stored, parameters are published through staging.
  for (const auto* group :
       {&dense_.group, &experts_.group, &publish_.group, &parameters_}) {
    add(*group, memory.parameters, memory.parameters_alike);
    add(*group, memory.gather_pool, true);
  }
  add(gradients_, memory.gradients, memory.gradients_alike);
  add(gradients_, memory.scatter_pool, false);
  add(gather_.group, memory.slots, true);
  add(scatter_.group, memory.slots, true);
  add(teams_.group, memory.rooms, false);
}

NodeGroup& Groups::of(GroupKind kind) {
  switch (kind) {
    case GroupKind::kSums:
      return *dense_.group;
    case GroupKind::kExperts:
      return *experts_.group;
    case GroupKind::kPublish:
      return *publish_.group;
    case GroupKind::kReplicas:
      return *replicas_;
    case GroupKind::kAllGroups:
      return *all_groups_;
    default:
      CANZONA_CHECK(false, "no group of buckets");
  }
}

Groups::Sent& Groups::Sent::operator+=(const Sent& other) {
  reduce_scatter += other.reduce_scatter;
  all_reduce += other.all_reduce;
  gather += other.gather;
  scatter += other.scatter;
  teams += other.teams;
  all_gather += other.all_gather;
  broadcast += other.broadcast;
  parameter_gather += other.parameter_gather;
  gradient_scatter += other.gradient_scatter;
  return *this;
}

void Groups::close() {
  for (Line* line :
       {&dense_, &experts_, &publish_, &gather_, &scatter_, &teams_, &check_})
    line->courier.reset();
}

int64_t Groups::sum_staging() const {
  int64_t bytes = 0;
  for (const NodeGroup* group :
       {dense_.group.get(), experts_.group.get(), replicas_.get(),
        all_groups_.get(), gradients_.get()})
    if (group != nullptr) bytes += group->staging_bytes();
  return bytes;
}

std::chrono::nanoseconds Groups::busy() const {
  std::chrono::nanoseconds busy{0};
  for (const Line* line :
       {&dense_, &experts_, &publish_, &gather_, &scatter_, &teams_})
    if (line->courier != nullptr) busy += line->courier->busy();
  return busy;
}

std::chrono::nanoseconds Groups::exchange_busy() const {
  if (has_links()) return control_->busy_of(exchange_use_);
  std::chrono::nanoseconds busy{0};
  for (const Line* line : {&gather_, &scatter_, &teams_})
    if (line->courier != nullptr) busy += line->courier->busy();
  return busy;
}

// A rank that only sends to its team does not wait for that in its step.
Groups::Sent Groups::count(int64_t TrafficLog::Row::*bytes) {
  if (teams_.courier != nullptr) teams_.courier->last().wait();
  const auto of = [&](const std::unique_ptr<NodeGroup>& group,
                      Operation operation) {
    return group == nullptr ? 0 : group->traffic(operation).*bytes;
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
  sent.teams = of(teams_.group, Operation::kAllToAll);
  sent.parameter_gather = of(parameters_, Operation::kAllGather);
  sent.gradient_scatter = of(gradients_, Operation::kReduceScatter);
  return sent;
}

namespace {

constexpr size_t kMostText = 192;  // for an engine's description

// Visits the world ranks that share a matrix, once per replica.
template <class Visit>
void each_team(const PlanPart& part, size_t matrix, const Visit& visit) {
  if (part.owners[matrix].size() < 2) return;
  for (int32_t replica = 0; replica < part.num_replicas(); ++replica) {
    std::vector<int32_t> ranks;
    each_computing_rank(part, matrix, [&](int32_t rank) {
      ranks.push_back(part.rank_in_whole(rank_in_part(part, rank, replica)));
    });
    visit(ranks);
  }
}

}  // namespace

std::string find_unlike_members(const Plan& plan,
                                const std::vector<std::string>& engines) {
  std::string found;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.matrices.size() && found.empty(); ++m)
      each_team(part, m, [&](const std::vector<int32_t>& ranks) {
        const std::string& head = engines[index(ranks.front())];
        for (const int32_t rank : ranks) {
          const std::string& own = engines[index(rank)];
          if (own == head || !found.empty()) continue;
          const Tensor& tensor =
              part.model.tensors[index(part.matrices[m].tensor)];
          found =
              cat("matrix ", quoted(tensor.name), " is shared by ranks ",
                  ranks.front(), " and ", rank,
                  ", which compute differently: ", head, ", and ", own,
                  "; members of a team need the same device and kernels (see "
                  "OPENBLAS_CORETYPE), or plan with teams=off");
        }
      });
  return found;
}

void require_alike_members(const Plan& plan, Communicator& world,
                           const Engine& engine) {
  if (!has_teams(plan)) return;
  std::string own = cat(engine.kind(), ", ", engine.describe());
  own.resize(kMostText, ' ');
  const std::vector<int64_t> bytes(index(world.size()),
                                   static_cast<int64_t>(own.size()));
  std::string all(own.size() * bytes.size(), ' ');
  world.all_gather_v(std::as_bytes(std::span(own)), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "engines of teams"});
  std::vector<std::string> engines;
  for (size_t r = 0; r < bytes.size(); ++r) {
    std::string text = all.substr(r * own.size(), own.size());
    text.erase(text.find_last_not_of(' ') + 1);
    engines.push_back(std::move(text));
  }
  if (const std::string found = find_unlike_members(plan, engines);
      !found.empty())
    throw UsageError(found);
}

}  // namespace canzona
