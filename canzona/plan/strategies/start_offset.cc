#include "canzona/plan/strategies/start_offset.h"

#include <algorithm>

namespace canzona {

void assign_start_offset(const Problem& p, Assignment& a) {
  for (const OpenBucket& bucket : p.buckets) {
    const int64_t homes =
        p.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    int64_t offset = 0;
    for (int32_t t : bucket.matrix_tensors) {
      // floor(offset / (elements / homes)) without rounding.
      const auto slice =
          static_cast<int64_t>(static_cast<Int128>(offset) * homes /
                               std::max<int64_t>(bucket.elements, 1));
      a.home[static_cast<size_t>(t)] =
          static_cast<int32_t>(std::min(slice, homes - 1));
      offset += p.shard_elements[static_cast<size_t>(t)];
    }
  }
}

}  // namespace canzona
