// Checks what ranks store of a tensor and puts it together.
//
//   const auto pieces = stored_pieces(tensor);
//   pieces[0].box, pieces[0].ranks   // several ranks are replicas
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

// Which ranks store how much of every matrix.

struct Holder {
  int32_t rank = 0;
  int64_t elements = 0;  // more than none
};

// All holders of all items, an item's in ascending ranks. Items are the plan's
// matrices, then its shared element-wise tensors.
class HolderLists {
 public:
  // UsageError if there are more than can be planned.
  HolderLists(const PlacedPlan& plan,
              const std::vector<std::shared_ptr<const StoredPieces>>& pieces);

  std::span<const Holder> operator[](size_t item) const {
    return std::span(holders_).subspan(begin_[item],
                                       begin_[item + 1] - begin_[item]);
  }
  size_t size() const { return begin_.size() - 1; }

 private:
  void close();

  std::vector<size_t> begin_{0};
  std::vector<Holder> holders_;
};

// Classes of tensors: those whose replicas are the same ranks.

struct PlacedClasses {
  std::vector<PlacedClass> classes;  // by their first tensors; no rounds yet
  std::vector<int32_t> class_of;     // by tensor; -1: none
};

// `sets` has the sets of replicas of every tensor, none for tensors that are in
// no class. Two tensors may share a class if every set of one is a set of the
// other or has no rank in common with it; a class is as large as such tensors
// that share ranks make it.
PlacedClasses make_placed_classes(
    const std::vector<std::vector<std::vector<int32_t>>>& sets, int32_t world);

}  // namespace canzona
