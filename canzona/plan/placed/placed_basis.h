// Owners and rounds are decided from this, and plans are judged by it. It is
// derived from a request that was cut into matrices and classes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/plan/placed/holders.h"
#include "canzona/plan/placed/placed_loads.h"
#include "canzona/plan/placed/placed_plan.h"
#include "canzona/plan/placed/storage.h"

namespace canzona {

// A rank's place in a class is the numbers of its line and of its set of
// replicas; -1: it stores nothing of the class.
struct RanksOfClass {
  std::vector<int32_t> line;
  std::vector<int32_t> set;
};

enum class PlacedMessage { kGather, kScatter, kBroadcast };

// Decisions of `plan`, which it must outlive, may change; all else is fixed.
class PlacedBasis {
 public:
  explicit PlacedBasis(const PlacedPlan& plan);

  // Items are matrices, then shared element-wise tensors.
  const HolderLists& holders() const { return holders_; }
  const StepKinds& kinds() const { return kinds_; }

  bool is_matrix(size_t item) const { return item < plan_.matrices.size(); }
  const PlacedElements& elements(size_t item) const {
    return plan_.elements[item - plan_.matrices.size()];
  }
  int32_t tensor_of(size_t item) const {
    return is_matrix(item) ? plan_.matrices[item].tensor
                           : elements(item).tensor;
  }
  int32_t class_of(size_t item) const {
    return plan_.class_of[static_cast<size_t>(tensor_of(item))];
  }
  int32_t round_of(size_t item) const {
    return is_matrix(item) ? plan_.matrices[item].round : elements(item).round;
  }
  const RanksOfClass& ranks_of(int32_t number) const {
    return ranks_[static_cast<size_t>(number)];
  }
  // A matrix's load over a period.
  int64_t work_of(size_t matrix) const;
  // The owner, or the first rank of the line that keeps shared states.
  int32_t owner_of(size_t item) const;
  // The line in which an item is computed.
  int32_t line_of(size_t item) const;

  // Calls visit(message, from, to, bytes) for all that is sent for an item from
  // rank to rank in one step.
  template <class Visit>
  void each_message(size_t item, Visit visit) const;

 private:
  const PlacedPlan& plan_;
  std::vector<std::shared_ptr<const StoredPieces>> pieces_;
  HolderLists holders_;
  StepKinds kinds_;
  std::vector<int64_t> fields_;      // by group
  std::vector<RanksOfClass> ranks_;  // by class
};

template <class Visit>
void PlacedBasis::each_message(size_t item, Visit visit) const {
  const auto at = [](const auto& list, int32_t i) -> auto& {
    return list[static_cast<size_t>(i)];
  };
  const RanksOfClass& ranks = ranks_of(class_of(item));
  const PlacedClass& c = at(plan_.classes, class_of(item));
  const int32_t line = line_of(item), owner = owner_of(item);
  const int64_t fields = at(fields_, at(plan_.tensors, tensor_of(item)).group);
  // Weights of element-wise tensors are never rounded on their way.
  const int64_t wire =
      is_matrix(item) ? bytes_per_element(plan_.options.wire) : kBytesPerFp32;
  for (const Holder& holder : holders_[item]) {
    if (at(ranks.line, holder.rank) != line) continue;
    const int64_t bytes = holder.elements * wire;
    if (is_matrix(item) && holder.rank != owner) {
      visit(PlacedMessage::kGather, holder.rank, owner, bytes * fields);
      visit(PlacedMessage::kScatter, owner, holder.rank, bytes);
    }
    for (const int32_t other : at(c.replicas, at(ranks.set, holder.rank)))
      if (other != holder.rank)
        visit(PlacedMessage::kBroadcast, holder.rank, other, bytes);
  }
}

}  // namespace canzona
