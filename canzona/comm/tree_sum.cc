#include "canzona/comm/tree_sum.h"

#include <bit>

#include "canzona/base/check.h"

namespace canzona {
namespace {

struct Tree {
  const WireOps& ops;
  Reduction reduction;
  std::span<const std::byte* const> pieces;
  int64_t count;

  int64_t bytes() const { return count * element_bytes(reduction); }

  // The sum of pieces [first, end): in `sum`, or where a lone piece lies. The
  // left half is the largest power of two below the whole, which is where
  // carrying an odd one up leaves it.
  const std::byte* add(size_t first, size_t end, std::byte* sum,
                       std::byte* scratch) const {
    if (end - first == 1) return leaf(first, sum);
    const size_t middle = first + std::bit_floor(end - first - 1);
    const std::byte* left = add(first, middle, sum, scratch);
    const std::byte* right = add(middle, end, scratch, scratch + bytes());
    ops.add(reduction, sum, left, right, count);
    return sum;
  }

  const std::byte* leaf(size_t i, std::byte* widened) const {
    if (!is_narrowed(reduction)) return pieces[i];
    ops.widen(reduction, widened, pieces[i], count);
    return widened;
  }
};

}  // namespace

int64_t tree_scratch_bytes(Reduction reduction, int num_pieces, int64_t count) {
  const int depth = std::bit_width(static_cast<unsigned>(num_pieces));
  return depth * count * element_bytes(reduction);
}

void tree_sum(const WireOps& ops, Reduction reduction,
              std::span<const std::byte* const> pieces, int64_t count,
              std::byte* sum, std::byte* scratch) {
  CANZONA_CHECK(!pieces.empty(), "a sum of no pieces");
  const Tree tree{ops, reduction, pieces, count};
  const std::byte* result = tree.add(0, pieces.size(), sum, scratch);
  if (result != sum) ops.copy(sum, result, tree.bytes());
}

}  // namespace canzona
