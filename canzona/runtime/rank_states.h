// A rank's weights and states as boxes of logical tensors: which they are, and
// how numbers get into and out of them. For the sources of this room.
#pragma once

#include <span>
#include <vector>

#include "canzona/plan/schedule/state_boxes.h"
#include "canzona/runtime/rank.h"

namespace canzona {

std::vector<StateBox> states_of(const Rank& rank);

// Returns where the numbers of a box lie in the engine's memory: bf16 where
// parameters are and the box is of those, else fp32.
std::byte* memory_of(const Rank& rank, const StateBox& box);
// The same if that is memory of this process and in fp32; else empty.
std::span<float> host_values(const Rank& rank, const StateBox& box);

// All numbers of a box, widened or rounded where parameters are bf16.
// UsageError if there are more or fewer.
void get_state(Rank& rank, const StateBox& box, std::span<float> values);
void set_state(Rank& rank, const StateBox& box, std::span<const float> values);

// Rounds the weights that this rank updates, if parameters are bf16.
void round_weights(Rank& rank);

}  // namespace canzona
