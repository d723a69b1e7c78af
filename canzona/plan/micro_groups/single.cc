#include "canzona/plan/micro_groups/single.h"

#include <algorithm>

namespace canzona {

void assign_rounds_in_order(const Problem& p, std::span<const int32_t> matrices,
                            bool, Assignment& a) {
  int32_t round = 0;
  for (int32_t m : matrices) {
    a.owner[static_cast<size_t>(m)] = round % p.grid.tp;
    a.micro_group[static_cast<size_t>(m)] = round++;
  }
}

void assign_rounds_sorted(const Problem& p, std::span<const int32_t> matrices,
                          bool owners_known, Assignment& a) {
  std::vector<int32_t> order(matrices.begin(), matrices.end());
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return period_weight_of(p, x) > period_weight_of(p, y);
  });
  assign_rounds_in_order(p, order, owners_known, a);
}

}  // namespace canzona
