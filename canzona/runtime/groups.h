// The groups of ranks that a rank talks to, and the threads that do it.
//
//   Groups groups(world, plan, place, settings);
//   Work reduced = groups.data(of_experts).reduce_scatter_v(…);
//
// Data-parallel groups have the ranks of one tp plane that share a buffer, by
// home; tensor-parallel ones the ranks of one home. Every group has a
// communicator of its own, every courier a thread. All ranks make theirs at
// once; `world` outlives them.
#pragma once

#include <chrono>
#include <memory>

#include "canzona/comm/courier.h"
#include "canzona/runtime/rank_place.h"

namespace canzona {

class Groups {
 public:
  // `ops`: of the memory of parameters and gradients. `trace` may be null.
  Groups(Communicator& world, const Plan& plan, const RankPlace& place,
         const WireOps& ops, int capacity, Trace* trace);

  // The calling thread's own: numbers of this process, all ranks.
  Communicator& control() { return *control_; }
  Courier& data(bool of_experts) {
    return of_experts ? *experts_.courier : *dense_.courier;
  }
  // Only where tp > 1.
  Courier& gather() { return *gather_.courier; }
  Courier& scatter() { return *scatter_.courier; }

  // Ends the threads, after what was posted; nothing may be posted any more.
  void close();

  // Ends everything on all ranks.
  void abort(std::string_view reason) { control_->abort(reason); }

  // Time that all couriers have spent in operations.
  std::chrono::nanoseconds busy() const;
  // Bytes sent, by group and operation, since the beginning. Call it while
  // nothing is under way.
  struct Sent {
    int64_t reduce_scatter = 0;
    int64_t all_reduce = 0;
    int64_t gather = 0;
    int64_t scatter = 0;
    int64_t all_gather = 0;
    int64_t broadcast = 0;
    int64_t total() const {
      return reduce_scatter + all_reduce + gather + scatter + all_gather +
             broadcast;
    }
  };
  Sent sent() const;

 private:
  struct Line {
    std::unique_ptr<Communicator> group;
    std::unique_ptr<Courier> courier;  // last: it uses the group
  };

  std::unique_ptr<Communicator> control_;
  Line dense_, experts_, gather_, scatter_;
};

}  // namespace canzona
