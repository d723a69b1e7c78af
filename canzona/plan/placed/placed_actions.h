// The actions of a rank in order, once its rounds are known. For
// placed_schedule.cc.
#pragma once

#include "canzona/plan/placed/placed_moves.h"

namespace canzona {

// What a rank has of a plan in every step, whatever the rounds: the storage
// that it counts, states with the shard, element-wise tensors and matrices that
// no piece of moves. For placed_schedule.cc.

void add_placed_states(PlacedDraft& draft);

void add_placed_actions(PlacedDraft& draft, const PlacedExchange& exchange);

}  // namespace canzona
