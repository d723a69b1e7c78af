// Adds the actions of a rank in order, once its rounds are known. For
// placed_schedule.cc.
#pragma once

#include "canzona/plan/placed/placed_moves.h"

namespace canzona {

// Adds what a rank does in every step regardless of rounds: the storage that it
// counts, states with the shard, element-wise tensors and matrices whose pieces
// never move. For placed_schedule.cc.
void add_placed_states(PlacedDraft& draft);

void add_placed_actions(PlacedDraft& draft, const PlacedExchange& exchange);

}  // namespace canzona
