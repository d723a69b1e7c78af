// Which ranks store how much of every matrix.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"
#include "canzona/plan/placed/storage.h"

namespace canzona {

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

}  // namespace canzona
