// The groups of ranks that a rank communicates with, and their threads.
//
//   Groups groups(world, part, ops, capacity, add_track, "");
//   Work reduced = groups.data(of_experts).reduce_scatter_v(…);
//
// A data-parallel group consists of the ranks of one tp plane that share a
// buffer, ordered by home; a tensor-parallel group of the ranks of one home.
// With slices (plan/zero.h), gradients are summed and new parameters exchanged
// among the ranks that store the same slices; modules are gathered and
// scattered in groups of consecutive homes. Groups that span several nodes are
// hierarchical if the plan says so. Every group, or level of one, has its own
// communicator, and every courier a thread. All ranks construct theirs
// together; `world` must outlive them.
//
// With an asynchronous engine, two lanes replace the threads: gradients use
// one, parameters the other, and the posting thread issues the work.
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
// of a group have the same tensors at the same offsets.
struct GroupMemory {
  std::span<std::byte> parameters, gradients, slots, rooms, gather_pool,
      scatter_pool;
  bool parameters_alike = false, gradients_alike = false;
};

class Groups {
 public:
  // `ops`: for the memory of parameters and gradients. `add_track` returns the
  // track of a new thread or of a lane, or null. `prefix`: for the groups'
  // names.
  using AddTrack =
      std::function<Track*(const std::string& name, const Lane* lane)>;
  Groups(Communicator& world, const PlanPart& part, const WireOps& ops,
         const GroupLanes& lanes, int capacity, const AddTrack& add_track,
         const std::string& prefix);

  // Used by the calling thread, for numbers in host memory: all ranks.
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

  // The lanes that modules use; null if threads do it.
  Lane* gradient_lane() const { return lanes_.gradients.get(); }
  Lane* parameter_lane() const { return lanes_.parameters.get(); }

  // The group of this kind, in which buckets are summed or published
  // (plan/schedule/rank_group.h). The plan must have such groups. Used by the
  // threads of data() and publish().
  NodeGroup& of(GroupKind kind);
  // Used by the threads of modules; null if nothing is gathered or scattered.
  NodeGroup* parameters() { return parameters_.get(); }
  NodeGroup* gradients() { return gradients_.get(); }

  // Tells every group which memory its collectives use. All ranks call it once,
  // before any collective. The memory must outlive the groups.
  void register_memory(const GroupMemory& memory);

  // Joins the threads after all posted work; nothing may be posted afterwards.
  void close();

  // Aborts all communication on all ranks.
  void abort(std::string_view reason) { control_->abort(reason); }
  // The same for an error of a background thread (Communicator::give_up).
  void give_up(const std::exception_ptr& error, std::string_view doing) {
    control_->give_up(error, doing);
  }

  // Bytes of staging for sums of gradients, over all groups.
  int64_t sum_staging() const;

  // Time that all couriers have spent in operations.
  std::chrono::nanoseconds busy() const;
  // With modelled links: how long this rank's links were busy, with anything,
  // and with the step's gathers and scatters. Otherwise exchange_busy is the
  // time of the latter in operations.
  bool has_links() const { return control_->has_links(); }
  std::chrono::nanoseconds links_busy() const { return control_->links_busy(); }
  std::chrono::nanoseconds exchange_busy() const;
  // Bytes sent since construction, by group and operation. Call it between
  // steps, with parameters up to date.
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
  Sent sent() { return count(&TrafficLog::Row::sent); }
  // The part of these that went to other nodes, as given by the communicator's
  // options.
  Sent sent_slow() { return count(&TrafficLog::Row::sent_slow); }

 private:
  struct Line {
    std::unique_ptr<NodeGroup> group;
    std::unique_ptr<Courier> courier;  // last: it uses the group
  };

  void found_modules(Communicator& world, const PlanPart& part,
                     const WireOps& ops, const std::string& prefix);
  Sent count(int64_t TrafficLog::Row::*bytes);

  const GroupLanes lanes_;
  LinkUse exchange_use_;  // the groups below count into it
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<NodeGroup> replicas_, all_groups_, parameters_, gradients_;
  Line dense_, experts_, publish_, gather_, scatter_, teams_, check_;
};

// Checks that the members of a team use the same devices and kernels: they
// compute parts of one matrix, whose bits depend on both.
class Communicator;
class Engine;

// Returns what is wrong if ranks compute as `engines` says, by world rank;
// empty if the members of every team compute alike.
std::string find_unlike_members(const Plan& plan,
                                const std::vector<std::string>& engines);

// Throws UsageError on every rank if members of a team compute differently. If
// the plan has teams, all ranks must call it; otherwise it does nothing.
void require_alike_members(const Plan& plan, Communicator& world,
                           const Engine& engine);

}  // namespace canzona
