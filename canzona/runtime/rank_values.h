// The values that a rank keeps, from host memory: shards of parameters, and
// boxes of weights and states (plan/schedule/state_boxes.h). Internal to this
// folder. bf16 values are widened and rounded on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/schedule/state_boxes.h"
#include "canzona/runtime/rank.h"

namespace canzona::runtime {

// Sets the copy that forward uses, rounded if that is bf16, and the masters.
void write_shard(Rank& rank, int32_t tensor, std::span<const float> shard);
// The same from the engine's memory, ordered with its work.
void write_shard_there(Rank& rank, int32_t tensor, const float* shard);
// Concatenates the pieces that this rank stores.
void read_kept(Rank& rank, int32_t tensor, std::span<float> values);
// Throws UsageError if this rank stores only a part.
void read_shard(Rank& rank, int32_t tensor, std::span<float> shard);

// The rank's weights and states as boxes of logical tensors.
std::vector<StateBox> boxes_of(const Rank& rank);

// Returns where the values of a box lie in the engine's memory: bf16 if the box
// is one of parameters and those are bf16, else fp32; masters that are kept as
// remainders are restored in scratch of the caller's scope.
std::byte* memory_of(const Rank& rank, const StateBox& box);
// The same if that is host memory and fp32; else empty.
std::span<float> host_values(const Rank& rank, const StateBox& box);

// All values of a box. Throws UsageError if the number of values is wrong.
void read_box(Rank& rank, const StateBox& box, std::span<float> values);
void write_box(Rank& rank, const StateBox& box, std::span<const float> values);

// Sets the states to those before the first step.
void fill_states(Rank& rank);
// Rounds the weights that this rank updates, if parameters are bf16.
void round_weights(Rank& rank);

}  // namespace canzona::runtime
