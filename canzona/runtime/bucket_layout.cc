#include "canzona/runtime/bucket_layout.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/runtime/index.h"

namespace canzona {
namespace {

std::vector<int64_t> counts_of(const std::vector<int64_t>& cuts) {
  std::vector<int64_t> counts;
  for (size_t h = 1; h < cuts.size(); ++h)
    counts.push_back(cuts[h] - cuts[h - 1]);
  return counts;
}

// Where home `home`'s part begins, in elements from the region's first.
Extent own_part(const std::vector<int64_t>& counts, int32_t home) {
  Extent own;
  for (int32_t h = 0; h < home; ++h) own.first += counts[index(h)];
  own.count = counts[index(home)];
  return own;
}

Region region_of(int64_t first, int64_t count, std::vector<int64_t> counts,
                 int32_t home) {
  Region region{{first, count}, std::move(counts), {first, count}};
  if (!region.counts.empty()) {
    region.own = own_part(region.counts, home);
    region.own.first += first;
  }
  return region;
}

class RankLayoutMaker {
 public:
  RankLayoutMaker(const Plan& plan, const RankPlace& place)
      : plan_(plan), place_(place) {
    out_.tensors.resize(plan.model.tensors.size());
  }

  RankLayout make() {
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Buffer& buffer = plan_.buffers[index(plan_.buckets[b].buffer)];
      if (place_.holds(buffer)) add(static_cast<int32_t>(b), buffer);
    }
    return std::move(out_);
  }

 private:
  void add(int32_t number, const Buffer& buffer) {
    const Bucket& bucket = plan_.buckets[index(number)];
    RankBucket mine;
    mine.bucket = number;
    mine.of_experts = buffer.ep >= 0;
    mine.home = place_.home_in(buffer);
    mine.matrices = place_matrices(bucket, buffer, mine.home);
    mine.elements = place_elements(bucket, mine.matrices.all.end(), mine.home);
    mine.all = {mine.matrices.all.first,
                mine.matrices.all.count + mine.elements.all.count};
    out_.num_elements = mine.all.end();
    out_.buckets.push_back(std::move(mine));
  }

  Region place_matrices(const Bucket& bucket, const Buffer& buffer,
                        int32_t home) {
    const int64_t first = out_.num_elements;
    std::vector<int64_t> counts = counts_of(bucket.cuts);
    const bool padded = plan_.traffic == Traffic::kPadded;
    const int64_t longest =
        counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    int64_t end = first;
    for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
      const int32_t t = bucket.tensors[index(i)];
      const int64_t shift =
          padded ? padding_before(bucket, longest, plan_.home[index(t)]) : 0;
      end = put(t, end, shift);
    }
    if (!padded) return region_of(first, end - first, counts, home);
    std::fill(counts.begin(), counts.end(), longest);
    return region_of(first, longest * buffer.num_homes, counts, home);
  }

  // Elements of padding before the run of home `h`.
  static int64_t padding_before(const Bucket& bucket, int64_t longest,
                                int32_t h) {
    return longest * h - bucket.cuts[index(h)];
  }

  Region place_elements(const Bucket& bucket, int64_t first, int32_t home) {
    int64_t end = first;
    for (size_t i = index(bucket.num_matrix_tensors); i < bucket.tensors.size();
         ++i)
      end = put(bucket.tensors[i], end, 0);
    return region_of(first, end - first, counts_of(bucket.adamw_cuts), home);
  }

  // Returns the end without padding.
  int64_t put(int32_t tensor, int64_t at, int64_t shift) {
    const int64_t count =
        shard_elements(plan_.grid, plan_.model.tensors[index(tensor)]);
    out_.tensors[index(tensor)] = {static_cast<int32_t>(out_.buckets.size()),
                                   at + shift, count};
    return at + count;
  }

  const Plan& plan_;
  const RankPlace& place_;
  RankLayout out_;
};

}  // namespace

RankLayout lay_out_rank(const Plan& plan, const RankPlace& place) {
  return RankLayoutMaker(plan, place).make();
}

}  // namespace canzona
