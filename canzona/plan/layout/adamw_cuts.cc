#include "canzona/plan/layout/adamw_cuts.h"

#include <algorithm>
#include <numeric>

namespace canzona {
namespace {

int64_t adamw_elements(const Problem& p, const Bucket& bucket) {
  int64_t sum = 0;
  for (size_t i = static_cast<size_t>(bucket.num_matrix_tensors);
       i < bucket.tensors.size(); ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[i]);
    if (!p.model.tensors[t].frozen) sum += p.shard_elements[t];
  }
  return sum;
}

// Bytes that the matrices of each home (of all stages) keep on its fullest
// rank.
std::vector<int64_t> matrix_bytes(const Problem& p, const Assignment& a) {
  const auto per_stage = static_cast<size_t>(p.grid.homes());
  const size_t homes = per_stage * static_cast<size_t>(p.grid.pp);
  const auto tp = static_cast<size_t>(p.grid.tp);
  std::vector<int64_t> home(homes, 0), owner(homes * tp, 0);
  for (const OpenBucket& bucket : p.buckets) {
    const int32_t stage = p.buffers[static_cast<size_t>(bucket.buffer)].stage;
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (int32_t t : bucket.matrix_tensors) {
      const auto i = static_cast<size_t>(t);
      const size_t h = first + static_cast<size_t>(stage_home(p, t, a.home[i]));
      home[h] += p.home_bytes[i];
      for (int32_t m = p.first_matrix[i]; m < p.first_matrix[i + 1]; ++m) {
        owner[h * tp + static_cast<size_t>(a.owner[static_cast<size_t>(m)])] +=
            p.owner_bytes[static_cast<size_t>(m)];
      }
    }
  }
  for (size_t h = 0; h < homes; ++h) {
    const auto first = owner.begin() + static_cast<int64_t>(h * tp);
    home[h] += *std::max_element(first, first + static_cast<int64_t>(tp));
  }
  return home;
}

// Elements for each home such that bytes[h] + per_element · out[h] is level.
std::vector<int64_t> water_fill(const std::vector<int64_t>& bytes,
                                int64_t elements, int64_t per_element) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] < bytes[b]; });
  const Int128 water = static_cast<Int128>(elements) * per_element;
  Int128 below = 0;  // bytes of the homes that get water
  size_t wet = 0;
  for (; wet < order.size(); ++wet) {
    const Int128 needed =
        static_cast<Int128>(bytes[order[wet]]) * static_cast<int64_t>(wet) -
        below;
    if (needed > water) break;
    below += bytes[order[wet]];
  }
  std::vector<int64_t> out(bytes.size(), 0);
  const Int128 level = (below + water) / static_cast<int64_t>(wet);
  int64_t left = elements;
  for (size_t i = 0; i < wet; ++i) {
    const auto room = static_cast<int64_t>(level - bytes[order[i]]);
    out[order[i]] = std::min(std::max<int64_t>(room / per_element, 0), left);
    left -= out[order[i]];
  }
  for (size_t i = 0; left > 0; i = (i + 1) % wet, --left) ++out[order[i]];
  return out;
}

// Hands every bucket's elements to homes in proportion to their quota, keeping
// the running totals within one element of it.
class ProportionalCuts {
 public:
  explicit ProportionalCuts(std::vector<int64_t> quota)
      : quota_(std::move(quota)), given_(quota_.size(), 0) {
    total_ = std::accumulate(quota_.begin(), quota_.end(), int64_t{0});
  }

  std::vector<int64_t> cut(int64_t elements) {
    seen_ += elements;
    std::vector<int64_t> cuts{0};
    Int128 carried = 0;
    int64_t end = 0;
    for (size_t h = 0; h < quota_.size(); ++h) {
      // Rounding the running sum over homes makes the shares add up exactly.
      carried += static_cast<Int128>(quota_[h]) * seen_;
      const int64_t upto =
          total_ == 0 ? 0 : static_cast<int64_t>(carried / total_);
      const int64_t share = upto - end;
      end = upto;
      cuts.push_back(cuts.back() + std::max<int64_t>(share - given_[h], 0));
      given_[h] += std::max<int64_t>(share - given_[h], 0);
    }
    settle(cuts, elements);
    return cuts;
  }

 private:
  // Rounding may leave an element too many or too few; the last homes that can
  // take or give it do.
  void settle(std::vector<int64_t>& cuts, int64_t elements) {
    for (size_t h = quota_.size(); h-- > 0 && cuts.back() != elements;) {
      const int64_t piece = cuts[h + 1] - cuts[h];
      const int64_t change = std::max(elements - cuts.back(), -piece);
      for (size_t i = h + 1; i < cuts.size(); ++i) cuts[i] += change;
      given_[h] += change;
    }
  }

  std::vector<int64_t> quota_;
  std::vector<int64_t> given_;
  int64_t total_ = 0;
  int64_t seen_ = 0;
};

}  // namespace

void cut_adamw_evenly(const Problem& p, std::vector<Bucket>& buckets) {
  for (Bucket& bucket : buckets) {
    const int64_t homes =
        p.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    const int64_t elements = adamw_elements(p, bucket);
    bucket.adamw_cuts.clear();
    for (int64_t h = 0; h <= homes; ++h) {
      bucket.adamw_cuts.push_back(
          static_cast<int64_t>(static_cast<Int128>(elements) * h / homes));
    }
  }
}

void cut_adamw_level(const Problem& p, const Assignment& a,
                     std::vector<Bucket>& buckets) {
  const std::vector<int64_t> bytes = matrix_bytes(p, a);
  for (size_t f = 0; f < p.buffers.size(); ++f) {
    const Buffer& buffer = p.buffers[f];
    std::vector<int64_t> own;
    for (int32_t h = 0; h < buffer.num_homes; ++h) {
      const int32_t home =
          buffer.ep < 0 ? h : p.grid.home_of_expert(h, buffer.ep);
      const int32_t in_all = buffer.stage * p.grid.homes() + home;
      own.push_back(bytes[static_cast<size_t>(in_all)]);
    }
    int64_t elements = 0;
    for (const Bucket& bucket : buckets) {
      if (static_cast<size_t>(bucket.buffer) == f) {
        elements += adamw_elements(p, bucket);
      }
    }
    ProportionalCuts cuts(water_fill(
        own, elements, adamw_bytes_per_element(p.options.parameters)));
    for (Bucket& bucket : buckets) {
      if (static_cast<size_t>(bucket.buffer) != f) continue;
      bucket.adamw_cuts = cuts.cut(adamw_elements(p, bucket));
    }
  }
}

}  // namespace canzona
