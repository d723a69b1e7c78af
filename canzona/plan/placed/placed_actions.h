// The actions of a rank in order, once its rounds are known. For
// placed_schedule.cc.
#pragma once

#include "canzona/plan/placed/placed_moves.h"

namespace canzona {

void add_placed_actions(PlacedDraft& draft, const PlacedExchange& exchange);

}  // namespace canzona
