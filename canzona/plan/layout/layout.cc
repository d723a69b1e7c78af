#include "canzona/plan/layout/layout.h"

#include <algorithm>

#include "canzona/plan/layout/adamw_cuts.h"

namespace canzona {
namespace {

std::vector<int64_t> cuts_by_home(const Problem& p, const Assignment& a,
                                  const std::vector<int32_t>& tensors,
                                  int32_t num_homes) {
  std::vector<int64_t> cuts(static_cast<size_t>(num_homes) + 1, 0);
  for (int32_t t : tensors) {
    cuts[static_cast<size_t>(a.home[static_cast<size_t>(t)]) + 1] +=
        p.shard_elements[static_cast<size_t>(t)];
  }
  for (size_t h = 1; h < cuts.size(); ++h) cuts[h] += cuts[h - 1];
  return cuts;
}

}  // namespace

std::vector<Bucket> lay_out(const Problem& p, const Strategy& strategy,
                            const Assignment& a) {
  std::vector<Bucket> out;
  for (const OpenBucket& open : p.buckets) {
    Bucket bucket;
    bucket.buffer = open.buffer;
    bucket.tensors = open.matrix_tensors;
    bucket.num_matrix_tensors = static_cast<int32_t>(bucket.tensors.size());
    if (strategy.free_order) {
      std::stable_sort(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](int32_t x, int32_t y) {
                         return a.home[static_cast<size_t>(x)] <
                                a.home[static_cast<size_t>(y)];
                       });
    }
    if (is_scattered(strategy.traffic)) {
      bucket.cuts =
          cuts_by_home(p, a, bucket.tensors,
                       p.buffers[static_cast<size_t>(open.buffer)].num_homes);
    }
    bucket.tensors.insert(bucket.tensors.end(), open.adamw_tensors.begin(),
                          open.adamw_tensors.end());
    out.push_back(std::move(bucket));
  }
  if (strategy.traffic == Traffic::kAllReduce) return out;
  if (strategy.level_adamw) {
    cut_adamw_level(p, a, out);
  } else {
    cut_adamw_evenly(p, out);
  }
  return out;
}

}  // namespace canzona
