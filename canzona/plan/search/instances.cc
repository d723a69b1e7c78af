#include "canzona/plan/search/instances.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"

namespace canzona::plan {
namespace {

// The number of tensors that mend() may visit, which bounds the number of
// swaps; and the least number of rounds for which a swapped tensor is not
// swapped again.
constexpr int64_t kMendBudget = 30'000'000;
constexpr int64_t kMaxMendRounds = 20'000;
constexpr int64_t kRest = 8;

class Placing {
 public:
  Placing(const std::vector<InstanceBucket>& buckets,
          const std::vector<std::vector<Demand>>& demands,
          std::vector<int64_t> loads)
      : buckets_(buckets),
        demands_(demands),
        homes_(loads.size()),
        loads_(std::move(loads)),
        taken_(demands.size()),
        supply_(demands.size(), 0),
        total_(demands.size(), 0),
        held_(buckets.size(), std::vector<int64_t>(homes_, 0)) {
    for (size_t c = 0; c < demands.size(); ++c) {
      taken_[c].assign(demands[c].size(), 0);
      for (const Demand& d : demands[c]) total_[c] += d.count;
    }
    out_.changed.assign(homes_, false);
    for (const InstanceBucket& bucket : buckets) {
      out_.home.emplace_back(bucket.instances.size(), -1);
      caps_.push_back(bucket.cap);
    }
  }

  Placement run() {
    for (size_t b = 0; b < buckets_.size(); ++b) place_bucket(b);
    mend();
    return std::move(out_);
  }

 private:
  struct Place {  // of a tensor
    size_t bucket;
    size_t instance;
  };
  struct Cell {  // what a home keeps of a bucket
    size_t bucket;
    size_t home;
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

  // Chooses among the homes that still want this class: first those with room,
  // then the one furthest behind its share of what the buckets so far supply,
  // then the emptiest.
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
      const bool better =
          best == demands_[c].size() || fits > best_fits ||
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

  // Swaps tensors until no cell is overfull. If a bucket's cap proves out of
  // reach, the reachable cap replaces it; tensors that still do not fit are
  // dealt by bytes.
  void mend() {
    index_classes();
    swap_until_level();
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (fullest(b) > caps_[b]) caps_[b] = buckets_[b].reachable_cap;
    }
    swap_until_level();
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (fullest(b) > caps_[b] && !spill(b)) deal_by_bytes(b);
    }
  }

  // Moves the smallest tensors out of overfull cells to the least loaded homes
  // with room, whatever those had asked for. False if there is no room.
  bool spill(size_t b) {
    std::vector<size_t> order = largest_first(b);
    std::reverse(order.begin(), order.end());
    for (size_t i : order) {
      const size_t from = home({b, i});
      if (held_[b][from] <= caps_[b]) continue;
      const size_t to = home_with_room(b, elements({b, i}));
      if (to == homes_) return false;
      move({b, i}, to);
    }
    return fullest(b) <= caps_[b];
  }

  size_t home_with_room(size_t b, int64_t elements) const {
    size_t best = homes_;
    for (size_t h = 0; h < homes_; ++h) {
      if (held_[b][h] + elements > caps_[b]) continue;
      if (best == homes_ || loads_[h] < loads_[best]) best = h;
    }
    return best;
  }

  void move(const Place& p, size_t to) {
    const Instance& instance = buckets_[p.bucket].instances[p.instance];
    const size_t from = home(p);
    held_[p.bucket][from] -= instance.elements;
    held_[p.bucket][to] += instance.elements;
    loads_[from] -= instance.load;
    loads_[to] += instance.load;
    out_.home[p.bucket][p.instance] = static_cast<int32_t>(to);
    out_.changed[from] = true;
    out_.changed[to] = true;
  }

  int64_t fullest(size_t b) const {
    return *std::max_element(held_[b].begin(), held_[b].end());
  }

  void swap_until_level() {
    int64_t total = 0;  // overflow saved since the start
    int64_t best = 0;
    swaps_.clear();
    const int64_t rounds =
        std::clamp<int64_t>(kMendBudget / std::max<int64_t>(num_instances_, 1),
                            100, kMaxMendRounds);
    int64_t stuck = 0;
    for (int64_t n = 0; n < rounds && stuck < rounds / 2; ++n) {
      const Cell worst = most_overfull();
      if (overflow(worst, 0) == 0) return;
      total += relieve(worst, ++clock_);
      ++stuck;
      if (total > best) {
        best = total;
        swaps_.clear();
        stuck = 0;
      }
    }
    for (; !swaps_.empty(); swaps_.pop_back())
      swap(swaps_.back().first, swaps_.back().second);
  }

  void index_classes() {
    by_class_.resize(demands_.size());
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (size_t i = 0; i < buckets_[b].instances.size(); ++i) {
        const auto c = static_cast<size_t>(buckets_[b].instances[i].item_class);
        by_class_[c].push_back({b, i});
      }
      moved_.emplace_back(buckets_[b].instances.size(), -2 * kRest);
      num_instances_ += static_cast<int64_t>(buckets_[b].instances.size());
    }
  }

  // Returns the elements above the cap if `change` were added to a cell.
  int64_t overflow(const Cell& cell, int64_t change) const {
    return std::max<int64_t>(
        held_[cell.bucket][cell.home] + change - caps_[cell.bucket], 0);
  }

  Cell most_overfull() const {
    Cell worst{0, 0};
    int64_t most = overflow(worst, 0);
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (size_t h = 0; h < homes_; ++h) {
        if (held_[b][h] - caps_[b] <= most) continue;
        worst = {b, h};
        most = overflow(worst, 0);
      }
    }
    return worst;
  }

  size_t home(const Place& p) const {
    return static_cast<size_t>(out_.home[p.bucket][p.instance]);
  }
  int64_t elements(const Place& p) const {
    return buckets_[p.bucket].instances[p.instance].elements;
  }

  // Returns what swapping the homes of two tensors of a class saves in
  // overflow.
  int64_t gain(const Place& x, const Place& y) const {
    const int64_t e = elements(x);
    const Cell from{x.bucket, home(x)}, to{x.bucket, home(y)};
    const Cell back{y.bucket, home(y)}, fro{y.bucket, home(x)};
    return overflow(from, 0) - overflow(from, -e) + overflow(to, 0) -
           overflow(to, e) + overflow(back, 0) - overflow(back, -e) +
           overflow(fro, 0) - overflow(fro, e);
  }

  // Makes the best swap out of an overfull cell, even if it saves nothing,
  // because only that may lead out of a local minimum. Tensors that moved are
  // not moved again for a while, so that the search does not cycle.
  int64_t relieve(const Cell& cell, int64_t now) {
    int64_t best = INT64_MIN;
    Place best_x{}, best_y{};
    int32_t tried = -1;
    for (size_t i : largest_first(cell.bucket)) {
      const Place x{cell.bucket, i};
      const int32_t c = buckets_[x.bucket].instances[i].item_class;
      if (home(x) != cell.home || c == tried || resting(x, now)) continue;
      tried = c;  // tensors of a class in one cell are interchangeable
      for (const Place& y : by_class_[static_cast<size_t>(c)]) {
        if (y.bucket == x.bucket || home(y) == cell.home || resting(y, now)) {
          continue;
        }
        const int64_t g = gain(x, y);
        if (g > best) {
          best = g;
          best_x = x;
          best_y = y;
        }
      }
    }
    if (best == INT64_MIN) return 0;
    swap(best_x, best_y);
    swaps_.emplace_back(best_x, best_y);
    moved_[best_x.bucket][best_x.instance] = now;
    moved_[best_y.bucket][best_y.instance] = now;
    return best;
  }

  bool resting(const Place& p, int64_t now) const {
    // A varying rest keeps the search from cycling.
    return now - moved_[p.bucket][p.instance] < kRest + now % 7;
  }

  void swap(const Place& x, const Place& y) {
    const int64_t e = elements(x);
    held_[x.bucket][home(x)] -= e;
    held_[y.bucket][home(y)] -= e;
    std::swap(out_.home[x.bucket][x.instance], out_.home[y.bucket][y.instance]);
    held_[x.bucket][home(x)] += e;
    held_[y.bucket][home(y)] += e;
  }

  void deal_by_bytes(size_t b) {
    std::vector<int64_t> fresh(homes_, 0);
    for (size_t i : largest_first(b)) {
      const auto h = static_cast<size_t>(
          std::min_element(fresh.begin(), fresh.end()) - fresh.begin());
      fresh[h] += elements({b, i});
      if (home({b, i}) != h) move({b, i}, h);
    }
  }

  const std::vector<InstanceBucket>& buckets_;
  const std::vector<std::vector<Demand>>& demands_;
  size_t homes_;
  std::vector<int64_t> loads_;               // per home, over a period
  std::vector<std::vector<int32_t>> taken_;  // per class and demand
  std::vector<int64_t> supply_;              // per class, buckets so far
  std::vector<int64_t> total_;               // per class
  std::vector<std::vector<int64_t>> held_;   // elements per bucket and home
  std::vector<std::vector<Place>> by_class_;
  std::vector<std::pair<Place, Place>> swaps_;  // since the best so far
  std::vector<int64_t> caps_;
  int64_t clock_ = 0;
  int64_t num_instances_ = 0;
  std::vector<std::vector<int64_t>> moved_;  // round of a tensor's last swap
  Placement out_;
};

}  // namespace

Placement place_instances(const std::vector<InstanceBucket>& buckets,
                          const std::vector<std::vector<Demand>>& demands,
                          const std::vector<int64_t>& loads) {
  return Placing(buckets, demands, loads).run();
}

namespace {

class TensorSwaps {
 public:
  TensorSwaps(DealtStage& stage, int64_t budget)
      : stage_(stage),
        budget_(budget),
        loads_(stage.zones.size(), 0),
        held_(stage.caps.size(),
              std::vector<int64_t>(index(1 + std::ranges::max(stage.homes)))) {
    for (const DealtTensor& t : stage.tensors) {
      loads_[t.rank] += t.load;
      held_[t.bucket][home(t.rank)] += t.elements;
    }
  }

  void run() {
    while (budget_ > 0 && improve_once()) {
    }
  }

 private:
  struct Change {
    size_t x = 0;
    size_t y = SIZE_MAX;  // SIZE_MAX: a move
    size_t to = 0;
    int64_t larger = 0;  // the larger of the two loads afterwards
  };

  size_t home(size_t rank) const { return index(stage_.homes[rank]); }

  bool may_own(const DealtTensor& t, size_t rank) const {
    return t.zone < 0 || t.zone == stage_.zones[rank];
  }

  // True if home h has room for `in` once `out` has left.
  bool has_room(size_t h, const DealtTensor& in, const DealtTensor* out) const {
    int64_t held = held_[in.bucket][h] + in.elements;
    if (out && out->bucket == in.bucket) held -= out->elements;
    return held <= stage_.caps[in.bucket];
  }

  bool improve_once() {
    const auto from = static_cast<size_t>(
        std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
    Change best;
    best.larger = loads_[from];
    for (size_t x = 0; x < stage_.tensors.size(); ++x) {
      if (stage_.tensors[x].rank != from) continue;
      try_moves(x, best);
      try_swaps(x, best);
    }
    if (best.larger == loads_[from]) return false;
    apply(best);
    return true;
  }

  void try_moves(size_t x, Change& best) {
    const DealtTensor& t = stage_.tensors[x];
    for (size_t to = 0; to < loads_.size(); ++to) {
      --budget_;
      const int64_t larger =
          std::max(loads_[t.rank] - t.load, loads_[to] + t.load);
      if (to == t.rank || larger >= best.larger || !may_own(t, to)) continue;
      if (home(to) != home(t.rank) && !has_room(home(to), t, nullptr)) continue;
      best = {x, SIZE_MAX, to, larger};
    }
  }

  void try_swaps(size_t x, Change& best) {
    const DealtTensor& t = stage_.tensors[x];
    for (size_t y = 0; y < stage_.tensors.size(); ++y) {
      --budget_;
      const DealtTensor& u = stage_.tensors[y];
      const int64_t delta = t.load - u.load;
      const int64_t larger =
          std::max(loads_[t.rank] - delta, loads_[u.rank] + delta);
      if (delta <= 0 || u.rank == t.rank || larger >= best.larger) continue;
      if (!may_own(t, u.rank) || !may_own(u, t.rank)) continue;
      if (home(t.rank) != home(u.rank) &&
          (!has_room(home(u.rank), t, &u) || !has_room(home(t.rank), u, &t))) {
        continue;
      }
      best = {x, y, u.rank, larger};
    }
  }

  void apply(const Change& change) {
    const size_t from = stage_.tensors[change.x].rank;
    place(change.x, change.to);
    if (change.y != SIZE_MAX) place(change.y, from);
  }

  void place(size_t i, size_t to) {
    DealtTensor& t = stage_.tensors[i];
    loads_[t.rank] -= t.load;
    held_[t.bucket][home(t.rank)] -= t.elements;
    t.rank = to;
    loads_[to] += t.load;
    held_[t.bucket][home(to)] += t.elements;
  }

  DealtStage& stage_;
  int64_t budget_;
  std::vector<int64_t> loads_;              // per rank
  std::vector<std::vector<int64_t>> held_;  // per bucket and home
};

}  // namespace

void swap_tensors(DealtStage& stage, int64_t budget) {
  TensorSwaps(stage, budget).run();
}

}  // namespace canzona::plan
