#include "canzona/plan/search/instances.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"

namespace canzona {
namespace {

class Placing {
 public:
  Placing(const std::vector<InstanceBucket>& buckets,
          const std::vector<std::vector<Demand>>& demands, int32_t num_homes)
      : buckets_(buckets),
        demands_(demands),
        homes_(static_cast<size_t>(num_homes)),
        taken_(demands.size()),
        supply_(demands.size(), 0),
        total_(demands.size(), 0),
        held_(buckets.size(), std::vector<int64_t>(homes_, 0)) {
    for (size_t c = 0; c < demands.size(); ++c) {
      taken_[c].assign(demands[c].size(), 0);
      for (const Demand& d : demands[c]) total_[c] += d.count;
    }
    for (const InstanceBucket& bucket : buckets) {
      out_.home.emplace_back(bucket.instances.size(), -1);
    }
  }

  Placement run() {
    for (size_t b = 0; b < buckets_.size(); ++b) place_bucket(b);
    mend();
    return std::move(out_);
  }

 private:
  struct Place {
    size_t bucket;
    size_t instance;
  };

  std::vector<size_t> largest_first(size_t b) const {
    const auto& instances = buckets_[b].instances;
    std::vector<size_t> order(instances.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
      return instances[x].elements > instances[y].elements;
    });
    return order;
  }

  void place_bucket(size_t b) {
    for (const Instance& i : buckets_[b].instances) {
      ++supply_[static_cast<size_t>(i.item_class)];
    }
    for (size_t i : largest_first(b)) {
      const Instance& instance = buckets_[b].instances[i];
      const auto c = static_cast<size_t>(instance.item_class);
      const size_t d = choose(b, c, instance.elements);
      ++taken_[c][d];
      const int32_t home = demands_[c][d].home;
      out_.home[b][i] = home;
      held_[b][static_cast<size_t>(home)] += instance.elements;
    }
  }

  // Of the homes that still want this class: first those with room, then the one
  // furthest behind its share of what the buckets so far supply, then the
  // emptiest.
  size_t choose(size_t b, size_t c, int64_t elements) const {
    size_t best = demands_[c].size();
    int64_t best_lag = 0, best_held = 0;
    bool best_fits = false;
    for (size_t d = 0; d < demands_[c].size(); ++d) {
      if (taken_[c][d] == demands_[c][d].count) continue;
      const int64_t held = held_[b][static_cast<size_t>(demands_[c][d].home)];
      const bool fits = held + elements <= buckets_[b].cap;
      const int64_t lag = int64_t{demands_[c][d].count} * supply_[c] -
                          int64_t{taken_[c][d]} * total_[c];
      const bool better = best == demands_[c].size() || fits > best_fits ||
                          (fits == best_fits &&
                           (lag > best_lag || (lag == best_lag && held < best_held)));
      if (!better) continue;
      best = d;
      best_lag = lag;
      best_held = held;
      best_fits = fits;
    }
    CANZONA_CHECK(best < demands_[c].size(), "no home wants class ", c);
    return best;
  }

  // Swaps until no place is overfull; buckets that resist are dealt by bytes.
  void mend() {
    index_classes();
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (size_t h = 0; h < homes_; ++h) {
        while (held_[b][h] > buckets_[b].cap && relieve(b, h)) {
        }
        if (held_[b][h] > buckets_[b].reachable_cap) {
          deal_by_bytes(b);
          break;
        }
      }
    }
  }

  void index_classes() {
    by_class_.resize(demands_.size());
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (size_t i = 0; i < buckets_[b].instances.size(); ++i) {
        const auto c =
            static_cast<size_t>(buckets_[b].instances[i].item_class);
        by_class_[c].push_back({b, i});
      }
    }
  }

  // Swaps one tensor of (b, h) with one of its class elsewhere, so that no place
  // becomes overfull.
  bool relieve(size_t b, size_t h) {
    for (size_t i : largest_first(b)) {
      if (out_.home[b][i] != static_cast<int32_t>(h)) continue;
      const Instance& x = buckets_[b].instances[i];
      for (const Place& y : by_class_[static_cast<size_t>(x.item_class)]) {
        if (swappable(b, h, y, x.elements)) {
          swap({b, i}, y, x.elements);
          return true;
        }
      }
    }
    return false;
  }

  bool swappable(size_t b, size_t h, const Place& y, int64_t elements) const {
    if (y.bucket == b) return false;
    const auto other = static_cast<size_t>(out_.home[y.bucket][y.instance]);
    return other != h && held_[b][other] + elements <= buckets_[b].cap &&
           held_[y.bucket][h] + elements <= buckets_[y.bucket].cap;
  }

  void swap(const Place& x, const Place& y, int64_t elements) {
    int32_t& hx = out_.home[x.bucket][x.instance];
    int32_t& hy = out_.home[y.bucket][y.instance];
    held_[x.bucket][static_cast<size_t>(hx)] -= elements;
    held_[y.bucket][static_cast<size_t>(hy)] -= elements;
    std::swap(hx, hy);
    held_[x.bucket][static_cast<size_t>(hx)] += elements;
    held_[y.bucket][static_cast<size_t>(hy)] += elements;
  }

  void deal_by_bytes(size_t b) {
    std::fill(held_[b].begin(), held_[b].end(), 0);
    for (size_t i : largest_first(b)) {
      const auto h = static_cast<size_t>(
          std::min_element(held_[b].begin(), held_[b].end()) -
          held_[b].begin());
      held_[b][h] += buckets_[b].instances[i].elements;
      out_.home[b][i] = static_cast<int32_t>(h);
    }
    out_.redealt.push_back(b);
  }

  const std::vector<InstanceBucket>& buckets_;
  const std::vector<std::vector<Demand>>& demands_;
  size_t homes_;
  std::vector<std::vector<int32_t>> taken_;  // per class and demand
  std::vector<int64_t> supply_;              // per class, buckets so far
  std::vector<int64_t> total_;               // per class
  std::vector<std::vector<int64_t>> held_;   // elements per bucket and home
  std::vector<std::vector<Place>> by_class_;
  Placement out_;
};

}  // namespace

Placement place_instances(const std::vector<InstanceBucket>& buckets,
                          const std::vector<std::vector<Demand>>& demands,
                          int32_t num_homes) {
  return Placing(buckets, demands, num_homes).run();
}

}  // namespace canzona
