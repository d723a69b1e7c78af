// What a rank has of a plan in every step, whatever the rounds: the storage
// that it counts, states with the shard, element-wise tensors and matrices that
// no piece of moves. For placed_schedule.cc.
#pragma once

#include "canzona/plan/placed/placed_draft.h"

namespace canzona {

void add_placed_states(PlacedDraft& draft);

}  // namespace canzona
