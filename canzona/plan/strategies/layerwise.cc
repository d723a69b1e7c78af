#include "canzona/plan/strategies/layerwise.h"

#include <algorithm>

namespace canzona {
namespace {

std::vector<int32_t> dearest_first(const Problem& p) {
  std::vector<int32_t> order;
  for (const OpenBucket& bucket : p.buckets) {
    order.insert(order.end(), bucket.matrix_tensors.begin(),
                 bucket.matrix_tensors.end());
  }
  std::vector<int64_t> weight(p.model.tensors.size());
  for (int32_t t : order) weight[static_cast<size_t>(t)] = p.period_weight(t);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return weight[static_cast<size_t>(a)] > weight[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace

void assign_layerwise(const Problem& p, Assignment& a) {
  const auto homes = static_cast<size_t>(p.grid.homes());
  std::vector<int64_t> loads(homes * static_cast<size_t>(p.grid.pp), 0);
  for (int32_t t : dearest_first(p)) {
    const Buffer& buffer =
        p.buffers[static_cast<size_t>(p.buffer_of[static_cast<size_t>(t)])];
    const size_t first = static_cast<size_t>(buffer.stage) * homes;
    auto load = [&](int32_t h) -> int64_t& {
      return loads[first + static_cast<size_t>(stage_home(p, t, h))];
    };
    int32_t least = 0;
    for (int32_t h = 1; h < buffer.num_homes; ++h) {
      if (load(h) < load(least)) least = h;
    }
    load(least) += p.period_weight(t);
    a.home[static_cast<size_t>(t)] = least;
  }
  std::fill(a.owner.begin(), a.owner.end(), kEveryTpRank);
}

}  // namespace canzona
