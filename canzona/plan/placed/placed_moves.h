// Where everything of a rank's rounds lies in its slots, and what it sends and
// receives: the areas W, X, S and U of placed_schedule.h. For
// placed_schedule.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/placed/placed_draft.h"

namespace canzona {

// A rank of a line exchanges these, wherever its slot will be.
struct PlacedTables {
  std::vector<int64_t> sent, received;  // by rank of the line
  int64_t sent_at = 0, received_at = 0;
  bool is_empty = true;  // on every rank of the line
};
struct PlacedBlock {
  int32_t root = 0;
  int64_t at = 0, count = 0;
};
struct PlacedMoves {
  int32_t line_group = -1, set_group = -1;
  PlacedTables gather, scatter;
  std::vector<PlacedBlock> blocks;  // by line
  int32_t slot = 0;
};

// The rounds of all ranks, of which this rank has some.
struct PlacedExchange {
  int32_t num_slots = 0;
  std::vector<int32_t> place_of_round;  // in the schedule; -1: not this rank's
  std::vector<PlacedMoves> moves;       // as the schedule's rounds
  std::vector<std::vector<int32_t>> tensors_in;
};

// Adds this rank's rounds, and their slots, to the schedule.
PlacedExchange add_placed_rounds(PlacedDraft& draft);

}  // namespace canzona
