// The groups of ranks that a rank talks to, and the threads that do it.
//
//   Groups groups(world, part, ops, capacity, add_track, "");
//   Work reduced = groups.data(of_experts).reduce_scatter_v(…);
//
// Data-parallel groups have the ranks of one tp plane that share a buffer, by
// home; tensor-parallel ones the ranks of one home. With slices (plan/zero.h)
// gradients are summed among those that keep the same ones, and new parameters
// go round among those; modules are gathered and scattered in groups of
// consecutive homes. Groups on several nodes go in two levels if the plan says
// so. Every group, or level of one, has a communicator of its own, every
// courier a thread. All ranks make theirs at once; `world` outlives them.
//
// If the engine works later than it is told to, two lanes take the place of the
// threads: gradients leave on one, parameters come on the other, and the thread
// that posts issues.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/courier.h"
#include "canzona/comm/node_group.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

// Null where collectives have ended when they return.
struct GroupLanes {
  std::shared_ptr<Lane> gradients, parameters;
};

// The memory that a rank's collectives read and write. It is alike if all ranks
// of a group have the same tensors at the same places.
struct GroupMemory {
  std::span<std::byte> parameters, gradients, slots, rooms, gather_pool,
      scatter_pool;
  bool parameters_alike = false, gradients_alike = false;
};

class Groups {
 public:
  // `ops`: of the memory of parameters and gradients. `add_track` makes the
  // track of a thread, or gives that of a lane, or null. `prefix`: of the
  // groups' names.
  using AddTrack =
      std::function<Track*(const std::string& name, const Lane* lane)>;
  Groups(Communicator& world, const PlanPart& part, const WireOps& ops,
         const GroupLanes& lanes, int capacity, const AddTrack& add_track,
         const std::string& prefix);

  // The calling thread's own, for numbers of this process: all ranks.
  Communicator& control() { return *control_; }
  // Sums of gradients.
  Courier& data(bool of_experts) {
    return of_experts ? *experts_.courier : *dense_.courier;
  }
  // New parameters.
  Courier& publish(bool of_experts) {
    return publish_.courier != nullptr ? *publish_.courier : data(of_experts);
  }
  // Numbers of all ranks in the engine's memory; only with lanes.
  Courier& check() { return *check_.courier; }
  // Only where the plan's grid has tp > 1.
  Courier& gather() { return *gather_.courier; }
  Courier& scatter() { return *scatter_.courier; }
  // Only where the plan has teams.
  Courier& teams() { return *teams_.courier; }

  // The lane of modules; null if threads do it.
  Lane* gradient_lane() const { return lanes_.gradients.get(); }
  Lane* parameter_lane() const { return lanes_.parameters.get(); }

  // The ranks of a kind of group that buckets are summed or published in
  // (plan/schedule/rank_group.h); the plan has such groups. For the threads of
  // data() and publish().
  NodeGroup& of(GroupKind kind);
  // For the threads of modules; null where nothing is gathered or scattered.
  NodeGroup* parameters() { return parameters_.get(); }
  NodeGroup* gradients() { return gradients_.get(); }

  // Tells every group which memory its collectives use. All ranks call it,
  // once, before any. The memory outlives the groups.
  void register_memory(const GroupMemory& memory);

  // Ends the threads, after what was posted; nothing may be posted any more.
  void close();

  // Ends everything on all ranks.
  void abort(std::string_view reason) { control_->abort(reason); }
  // The same for an error of a background thread (Communicator::give_up).
  void give_up(const std::exception_ptr& error, std::string_view doing) {
    control_->give_up(error, doing);
  }

  // The bytes in which sums of gradients are staged, of all groups.
  int64_t sum_staging() const;

  // Time that all couriers have spent in operations.
  std::chrono::nanoseconds busy() const;
  // With modelled links: how long this rank's were busy, with anything, and
  // with the step's gathers and scatters. Elsewhere the time of the latter in
  // operations.
  bool has_links() const { return control_->has_links(); }
  std::chrono::nanoseconds links_busy() const { return control_->links_busy(); }
  std::chrono::nanoseconds exchange_busy() const;
  // Bytes sent, by group and operation, since the beginning. Call it while
  // nothing is under way.
  struct Sent {
    int64_t reduce_scatter = 0;
    int64_t all_reduce = 0;
    int64_t gather = 0;
    int64_t scatter = 0;
    int64_t teams = 0;
    int64_t all_gather = 0;
    int64_t broadcast = 0;
    int64_t parameter_gather = 0;  // of modules
    int64_t gradient_scatter = 0;  // of modules
    int64_t total() const {
      return reduce_scatter + all_reduce + gather + scatter + teams +
             all_gather + broadcast + parameter_gather + gradient_scatter;
    }
    Sent& operator+=(const Sent& other);
  };
  Sent sent() const { return count(&TrafficLog::Row::sent); }
  // The part of these that went to other nodes, as the communicator's options
  // know them.
  Sent sent_slow() const { return count(&TrafficLog::Row::sent_slow); }

 private:
  struct Line {
    std::unique_ptr<NodeGroup> group;
    std::unique_ptr<Courier> courier;  // last: it uses the group
  };

  void found_modules(Communicator& world, const PlanPart& part,
                     const WireOps& ops, const std::string& prefix);
  Sent count(int64_t TrafficLog::Row::*bytes) const;

  const GroupLanes lanes_;
  LinkUse exchange_use_;  // the groups below count into it
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<NodeGroup> replicas_, all_groups_, parameters_, gradients_;
  Line dense_, experts_, publish_, gather_, scatter_, teams_, check_;
};

// Members of a team compute parts of one matrix, whose bits depend on what
// computes them: their devices and kernels must be the same.

class Communicator;
class Engine;

// What is wrong if ranks compute as `engines` says, by rank of the world;
// empty: the members of every team compute alike.
std::string find_unlike_members(const Plan& plan,
                                const std::vector<std::string>& engines);

// UsageError on every rank if members of a team compute differently. Of a plan
// with teams all ranks call it; of others it does nothing.
void require_alike_members(const Plan& plan, Communicator& world,
                           const Engine& engine);

}  // namespace canzona
