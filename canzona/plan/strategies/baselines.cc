#include "canzona/plan/strategies/strategy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "canzona/plan/layout/layout.h"

namespace canzona::plan {

void assign_start_offset(const Problem& p, Assignment& a) {
  for (const OpenBucket& bucket : p.buckets) {
    const int64_t homes =
        p.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    int64_t offset = 0;
    for (int32_t t : bucket.matrix_tensors) {
      // Computes floor(offset / (elements / homes)) in integers, without
      // rounding errors.
      const auto slice =
          static_cast<int64_t>(static_cast<Int128>(offset) * homes /
                               std::max<int64_t>(bucket.elements, 1));
      a.home[static_cast<size_t>(t)] =
          static_cast<int32_t>(std::min(slice, homes - 1));
      offset += p.shard_elements[static_cast<size_t>(t)];
    }
  }
}

namespace {

// The names follow the published listing: the target of every rank is a blend
// of an even share of the bucket and of what the rank lacks to the mean load.
class BufferPartition {
 public:
  BufferPartition(const Problem& p, int32_t buffer, double alpha)
      : p_(p),
        alpha_(alpha),
        homes_(static_cast<size_t>(
            p.buffers[static_cast<size_t>(buffer)].num_homes)),
        load_(homes_, 0) {
    for (const OpenBucket& bucket : p.buckets) {
      if (bucket.buffer != buffer) continue;
      buckets_.push_back(&bucket);
      totals_.push_back(total(bucket));
    }
    mean_ = std::accumulate(totals_.begin(), totals_.end(), 0.0) /
            static_cast<double>(homes_);
  }

  void run(Assignment& a) {
    std::vector<size_t> order(buckets_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
      return totals_[x] > totals_[y];
    });
    for (size_t i : order) cut(*buckets_[i], totals_[i], a);
  }

 private:
  double weight(int32_t t) const {
    return static_cast<double>(p_.period_weight(t));
  }
  double total(const OpenBucket& bucket) const {
    double sum = 0;
    for (int32_t t : bucket.matrix_tensors) sum += weight(t);
    return sum;
  }

  std::vector<double> wanted(double bucket_total) const {
    std::vector<double> lack;
    for (double load : load_) lack.push_back(std::max(0.0, mean_ - load));
    const double sum = std::accumulate(lack.begin(), lack.end(), 0.0);
    const double even = 1 / static_cast<double>(homes_);
    for (double& share : lack) {
      const double fill = sum > 1e-9 ? share / sum : even;
      share = bucket_total * ((1 - alpha_) * even + alpha_ * fill);
    }
    return lack;
  }

  void cut(const OpenBucket& bucket, double bucket_total, Assignment& a) {
    std::vector<double> border{0};
    for (int32_t t : bucket.matrix_tensors) {
      border.push_back(border.back() + weight(t));
    }
    const std::vector<double> want = wanted(bucket_total);
    size_t begin = 0;
    double target = 0;
    for (size_t r = 0; r < homes_; ++r) {
      target += want[r];
      const size_t end =
          r + 1 == homes_ ? border.size() - 1 : nearest(border, begin, target);
      load_[r] += border[end] - border[begin];
      for (; begin < end; ++begin) {
        a.home[static_cast<size_t>(bucket.matrix_tensors[begin])] =
            static_cast<int32_t>(r);
      }
    }
  }

  // Returns the border at or after `begin` that is nearest to `target`; the
  // first one on a tie.
  static size_t nearest(const std::vector<double>& border, size_t begin,
                        double target) {
    size_t best = begin;
    for (size_t k = begin + 1; k < border.size(); ++k) {
      if (std::fabs(border[k] - target) < std::fabs(border[best] - target)) {
        best = k;
      } else if (border[k] > border[best]) {
        break;
      }
    }
    return best;
  }

  const Problem& p_;
  double alpha_;
  size_t homes_;
  std::vector<const OpenBucket*> buckets_;
  std::vector<double> totals_;
  double mean_ = 0;
  std::vector<double> load_;
};

}  // namespace

void assign_contiguous(const Problem& p, Assignment& a) {
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    BufferPartition(p, static_cast<int32_t>(b), *p.options.alpha).run(a);
  }
}

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

namespace {

// Returns max·min² of the whole matrices, by which Megatron-Core sorts them.
double megatron_cost(const Problem& p, int32_t tensor) {
  const auto t = static_cast<size_t>(tensor);
  double sum = 0;
  for (int32_t m = p.first_matrix[t]; m < p.first_matrix[t + 1]; ++m) {
    const Matrix& matrix = p.matrices[static_cast<size_t>(m)];
    const auto low = static_cast<double>(std::min(matrix.rows, matrix.cols));
    const auto high = static_cast<double>(std::max(matrix.rows, matrix.cols));
    sum += high * low * low;
  }
  return sum;
}

struct Ranked {
  int32_t tensor;
  double cost;
};

std::vector<Ranked> dearest_first(const Problem& p, const OpenBucket& bucket) {
  std::vector<Ranked> order;
  for (int32_t t : bucket.matrix_tensors) {
    order.push_back({t, megatron_cost(p, t)});
  }
  std::stable_sort(
      order.begin(), order.end(),
      [](const Ranked& a, const Ranked& b) { return a.cost > b.cost; });
  return order;
}

// Returns the least loaded home with room; if no home has room, the emptiest.
size_t choose(const std::vector<double>& load, const std::vector<int64_t>& held,
              int64_t elements, int64_t limit) {
  size_t best = load.size();
  for (size_t h = 0; h < load.size(); ++h) {
    if (held[h] + elements > limit) continue;
    if (best == load.size() || load[h] < load[best]) best = h;
  }
  if (best < load.size()) return best;
  return static_cast<size_t>(std::min_element(held.begin(), held.end()) -
                             held.begin());
}

}  // namespace

void assign_megatron(const Problem& p, Assignment& a) {
  std::vector<std::vector<double>> loads;
  for (const Buffer& buffer : p.buffers) {
    loads.emplace_back(static_cast<size_t>(buffer.num_homes), 0.0);
  }
  for (const OpenBucket& bucket : p.buckets) {
    std::vector<double>& load = loads[static_cast<size_t>(bucket.buffer)];
    std::vector<int64_t> held(load.size(), 0);
    std::vector<int64_t> shards;
    for (int32_t t : bucket.matrix_tensors) {
      shards.push_back(p.shard_elements[static_cast<size_t>(t)]);
    }
    const int64_t limit =
        bucket_cap(shards, static_cast<int64_t>(load.size()), *p.options.alpha);
    for (const Ranked& r : dearest_first(p, bucket)) {
      const auto t = static_cast<size_t>(r.tensor);
      const size_t h = choose(load, held, p.shard_elements[t], limit);
      load[h] += r.cost;
      held[h] += p.shard_elements[t];
      a.home[t] = static_cast<int32_t>(h);
    }
  }
}

void assign_replicated(const Problem&, Assignment& a) {
  std::fill(a.home.begin(), a.home.end(), kEveryHome);
  std::fill(a.owner.begin(), a.owner.end(), kEveryTpRank);
}

}  // namespace canzona::plan
