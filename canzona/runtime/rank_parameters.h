// Parameters of a rank, between its store and memory of this process; for the
// sources of this room.
#pragma once

#include <span>

#include "canzona/runtime/rank.h"

namespace canzona {

// UsageError if the tensor has no shard on this rank.
const FlatLayout::Place& place_of_shard(const Rank& rank,
                                        const FlatLayout& layout,
                                        int32_t tensor);

// Rounds the copy that forward uses, and keeps the master weights.
void set_parameter(Rank& rank, int32_t tensor, std::span<const float> shard);
// The pieces that this rank keeps, one after another.
void get_kept_parameter(Rank& rank, int32_t tensor, std::span<float> values);
// UsageError if it keeps some of it alone.
void get_whole_parameter(Rank& rank, int32_t tensor, std::span<float> shard);

}  // namespace canzona
