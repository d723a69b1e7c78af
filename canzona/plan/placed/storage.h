// Checks what ranks store of a tensor and puts it together.
//
//   const auto pieces = stored_pieces(tensor);
//   pieces[0].box, pieces[0].ranks   // several ranks are replicas
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// A box of a tensor and all ranks that store it, ascending.
struct StoredPiece {
  Box box;
  std::vector<int32_t> ranks;
};
using StoredPieces = std::vector<StoredPiece>;

// The boxes of a tensor, each once, by their first elements. UsageError, naming
// tensor, rank and box, if a box lies outside the shape, if two boxes overlap
// without being those of replicas, or if no rank stores some element.
StoredPieces stored_pieces(const PlacedTensor& tensor);

// Of all tensors; those that are stored alike share one list.
std::vector<std::shared_ptr<const StoredPieces>> stored_pieces(
    const PlacedRequest& request);

// The sets of replicas of a tensor, each once, by their first ranks. UsageError
// if sets overlap in part or have unequal numbers of ranks.
std::vector<std::vector<int32_t>> replica_sets(const PlacedTensor& tensor,
                                               const StoredPieces& pieces);

}  // namespace canzona
