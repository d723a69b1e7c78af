// What one rank sends and receives in a pairwise exchange, by link class.
//
//   Peers peers(plan, self);
//   for (…) peers.add(rank, run);   // itself among them
//   WireBytes bytes = peers.all_gather(bytes_per_element);
//
// The plan outlives it. One thread.
#pragma once

#include <cstdint>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

// Ranks of the world that exchange runs pairwise, as one of them sees it: it
// sends every peer that peer's run (reduce-scatter) or its own (all-gather).
class Peers {
 public:
  Peers(const PlanPart& plan, int32_t self) : plan_(plan), self_(self) {}

  void add(int32_t rank, int64_t run) {
    if (rank == self_) {
      own_ = run;
      return;
    }
    Side& side = plan_.node_of(rank) == plan_.node_of(self_) ? near_ : far_;
    side.ranks += 1;
    side.elements += run;
  }
  // Some of this node, or of others, at once.
  void add_near(int64_t ranks, int64_t elements) {
    near_.ranks += ranks;
    near_.elements += elements;
  }
  void add_far(int64_t ranks, int64_t elements) {
    far_.ranks += ranks;
    far_.elements += elements;
  }

  WireBytes reduce_scatter(int64_t bytes) const {
    return {.sent_intra = near_.elements * bytes,
            .sent_inter = far_.elements * bytes,
            .received_intra = own_ * near_.ranks * bytes,
            .received_inter = own_ * far_.ranks * bytes};
  }
  WireBytes all_gather(int64_t bytes) const {
    return {.sent_intra = own_ * near_.ranks * bytes,
            .sent_inter = own_ * far_.ranks * bytes,
            .received_intra = near_.elements * bytes,
            .received_inter = far_.elements * bytes};
  }

 private:
  struct Side {
    int64_t ranks = 0;
    int64_t elements = 0;
  };

  const PlanPart& plan_;
  int32_t self_;
  int64_t own_ = 0;
  Side near_, far_;  // of the same node, of others
};

}  // namespace canzona
