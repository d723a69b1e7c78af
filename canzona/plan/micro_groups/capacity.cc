#include "canzona/plan/micro_groups/capacity.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/micro_groups/single.h"

namespace canzona {
namespace {

// One open micro-group. Items come largest first, so adding an item to the
// dealing so far is the same as dealing all of them anew.
class OpenGroup {
 public:
  explicit OpenGroup(int32_t tp)
      : weights_(static_cast<size_t>(tp), 0),
        bytes_(static_cast<size_t>(tp), 0) {}

  size_t least_loaded() const {
    return static_cast<size_t>(
        std::min_element(weights_.begin(), weights_.end()) - weights_.begin());
  }
  bool fits(int64_t bytes, int64_t capacity) const {
    return bytes_[least_loaded()] + bytes <= capacity;
  }
  int32_t add(int64_t weight, int64_t bytes) {
    const size_t t = least_loaded();
    weights_[t] += weight;
    bytes_[t] += bytes;
    return static_cast<int32_t>(t);
  }

 private:
  std::vector<int64_t> weights_;
  std::vector<int64_t> bytes_;
};

void check_capacity(const Problem& p, int32_t matrix) {
  const int64_t bytes = exchange_bytes(p, matrix);
  if (bytes <= p.options.capacity_bytes) return;
  const auto m = static_cast<size_t>(matrix);
  throw UsageError(cat(
      "micro-groups capacity: matrix ",
      quoted(matrix_name(p.model, p.matrices[m], p.options.splits)), " needs ",
      human_bytes(bytes), " of TP shard at its owner, above capacity=",
      human_bytes(p.options.capacity_bytes),
      "; raise the capacity or use micro-groups=balanced"));
}

}  // namespace

void assign_capacity(const Problem& p, std::span<const int32_t> matrices,
                     bool owners_known, Assignment& a) {
  if (p.options.capacity_bytes == 0) {
    assign_rounds_sorted(p, matrices, owners_known, a);
    return;
  }
  std::vector<int32_t> order(matrices.begin(), matrices.end());
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return period_weight_of(p, x) > period_weight_of(p, y);
  });
  OpenGroup group(p.grid.tp);
  int32_t number = 0;
  for (int32_t m : order) {
    check_capacity(p, m);
    const int64_t bytes = exchange_bytes(p, m);
    if (!group.fits(bytes, p.options.capacity_bytes)) {
      group = OpenGroup(p.grid.tp);
      ++number;
    }
    a.owner[static_cast<size_t>(m)] = group.add(period_weight_of(p, m), bytes);
    a.micro_group[static_cast<size_t>(m)] = number;
  }
}

}  // namespace canzona
