// Checks what ranks store of a tensor and merges it into pieces.
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

#include "canzona/plan/storage/storage_plan.h"

namespace canzona::plan {

// A box of a tensor and all ranks that store it, ascending.
struct StoredPiece {
  Box box;
  std::vector<int32_t> ranks;
};
using StoredPieces = std::vector<StoredPiece>;

// Returns the distinct boxes of a tensor, ordered by first element. The
// UsageError names tensor, rank and box if a box lies outside the shape, if two
// boxes overlap without being replicas, or if some element is stored by no
// rank.
StoredPieces stored_pieces(const CutTensor& tensor);

// Returns the pieces of all tensors; tensors that are stored alike share one
// list.
std::vector<std::shared_ptr<const StoredPieces>> stored_pieces(
    const StorageRequest& request);

// Returns the distinct sets of replicas of a tensor, ordered by first rank.
// Throws UsageError if sets overlap partially or differ in size.
std::vector<std::vector<int32_t>> replica_sets(const CutTensor& tensor,
                                               const StoredPieces& pieces);

// How much of every matrix each rank stores.
struct Holder {
  int32_t rank = 0;
  int64_t elements = 0;  // positive
};

// The holders of all items, in ascending rank order per item. Items are the
// plan's matrices, then its shared element-wise tensors.
class HolderLists {
 public:
  // Throws UsageError if there are more holders than can be planned.
  HolderLists(const StoragePlan& plan,
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

// A class is a set of tensors whose replicas are the same ranks.
struct ReplicaClasses {
  std::vector<ReplicaClass> classes;  // ordered by first tensor; no rounds yet
  std::vector<int32_t> class_of;      // by tensor; -1: none
};

// `sets` holds the sets of replicas of every tensor; it is empty for tensors
// that are in no class. Two tensors may share a class if every set of one is a
// set of the other or disjoint from all of them. Such tensors that share ranks
// are joined into one class, as large as possible.
ReplicaClasses make_replica_classes(
    const std::vector<std::vector<std::vector<int32_t>>>& sets, int32_t world);

}  // namespace canzona::plan
