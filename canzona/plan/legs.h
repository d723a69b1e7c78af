// How collectives of modules (zero.h) reach over nodes: all with all, or in two
// legs that send once per node.
//
//   Legs legs = module_legs(plan, world_rank, z3);
//   if (legs.across > 1) …   // legs.inside of the group's ranks on every node
//
// Two legs want equally many ranks of a group, one after the other, on each of
// its nodes. Groups inside one node, and such with one rank on every node, are
// direct anyway. Pure.
#pragma once

#include <cstdint>

#include "canzona/plan/plan.h"

namespace canzona {

// Ranks of each leg; their product is the group.
struct Legs {
  int32_t inside = 1;
  int32_t across = 1;  // 1: direct, whichever nodes the ranks are on
  friend bool operator==(const Legs&, const Legs&) = default;
};

// Of the group of z consecutive homes in which a rank of the world stands.
Legs module_legs(const PlanPart& plan, int32_t world_rank, int32_t z);

// UsageError if the plan asks for two legs and a group does not allow it. Looks
// at mesh, options and place alone.
void check_reach(const PlanPart& plan);

}  // namespace canzona
