#include "canzona/plan/placed/holders.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr size_t kMaxHolders = size_t{1} << 25;
constexpr size_t kMaxComparisons = size_t{1} << 31;  // of matrices and pieces

[[noreturn]] void refuse_pieces(size_t most) {
  throw UsageError(
      cat("more than ", most, " pieces of matrices on all ranks together"));
}

}  // namespace

HolderLists::HolderLists(
    const PlacedPlan& plan,
    const std::vector<std::shared_ptr<const StoredPieces>>& pieces) {
  size_t comparisons = 0;
  for (const PlacedMatrix& m : plan.matrices) {
    const PlacedTensor& tensor = plan.tensors[index(m.tensor)];
    comparisons += pieces[index(m.tensor)]->size();
    if (comparisons > kMaxComparisons) refuse_pieces(kMaxComparisons);
    for (const StoredPiece& piece : *pieces[index(m.tensor)]) {
      const int64_t elements = common_elements(tensor, m, piece.box);
      if (elements == 0) continue;
      for (const int32_t rank : piece.ranks)
        holders_.push_back({rank, elements});
    }
    close();
  }
  for (const PlacedElements& e : plan.elements) {
    for (const StoredPiece& piece : *pieces[index(e.tensor)])
      for (const int32_t rank : piece.ranks)
        holders_.push_back({rank, piece.box.elements()});
    close();
  }
}

// The holders since the last call are those of one item.
void HolderLists::close() {
  const auto first = holders_.begin() + static_cast<int64_t>(begin_.back());
  std::sort(first, holders_.end(),
            [](const Holder& a, const Holder& b) { return a.rank < b.rank; });
  auto last = first;
  for (auto it = first; it != holders_.end(); ++it) {
    if (it != first && it->rank == last->rank) {
      last->elements += it->elements;
    } else if (it != first) {
      *++last = *it;
    }
  }
  if (first != holders_.end()) holders_.erase(last + 1, holders_.end());
  if (holders_.size() > kMaxHolders) refuse_pieces(kMaxHolders);
  begin_.push_back(holders_.size());
}

}  // namespace canzona
