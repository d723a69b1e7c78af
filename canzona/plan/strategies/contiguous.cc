#include "canzona/plan/strategies/contiguous.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace canzona {
namespace {

// The words follow the published listing: every rank r wants a share of the
// bucket, blended of an even part and of what it lacks to the mean load.
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

  // The first border at or after `begin` that is nearest to `target`.
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

}  // namespace canzona
