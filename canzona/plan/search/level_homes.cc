#include <algorithm>

#include "canzona/plan/search/homes.h"

namespace canzona {
namespace {

// Item-level exchanges between homes under the load limits of the start.
class Leveling {
 public:
  Leveling(Bundles& bundles, int32_t tp, int64_t element_limit, int64_t budget)
      : bundles_(bundles),
        tp_(static_cast<size_t>(tp)),
        element_limit_(element_limit),
        budget_(budget),
        homes_(bundles.num_ranks() / tp_),
        load_limits_(bundles.dims(), 0) {
    for (size_t c = 0; c < bundles.classes().size(); ++c) {
      items_.push_back(weigh_item(bundles, static_cast<int32_t>(c)));
    }
    for (size_t r = 0; r < bundles.num_ranks(); ++r) {
      homes_[r / tp_] += weigh_bundle(bundles, r);
      for (size_t p = 0; p < load_limits_.size(); ++p) {
        load_limits_[p] = std::max(load_limits_[p], bundles.load(r)[p]);
      }
    }
  }

  void run() {
    while (budget_ > 0 && largest_elements() > element_limit_ &&
           relieve(&HomeWeight::elements, {})) {
    }
    element_limit_ = std::max(element_limit_, largest_elements());
    while (budget_ > 0 &&
           relieve(&HomeWeight::cost, {INT64_MAX, element_limit_})) {
    }
    const HomeLimits limits = limits_for_memory(homes_, element_limit_);
    while (budget_ > 0 && relieve(&HomeWeight::memory, limits)) {
    }
  }

 private:
  using Key = int64_t HomeWeight::*;
  struct Move {
    size_t from = 0, to = 0;
    int32_t out = -1, in = -1;
    int64_t key = 0;
  };

  int64_t largest_elements() const {
    return homes_[largest_home(homes_, &HomeWeight::elements)].elements;
  }

  HomeWeight moved(const Move& move) const {
    HomeWeight w = items_[static_cast<size_t>(move.out)];
    if (move.in >= 0) w -= items_[static_cast<size_t>(move.in)];
    return w;
  }

  // One exchange that lowers the home with the largest `key`.
  bool relieve(Key key, const HomeLimits& limits) {
    const size_t home = largest_home(homes_, key);
    Move best;
    best.key = homes_[home].*key;
    for (size_t from = home * tp_; from < (home + 1) * tp_; ++from) {
      for (const ClassCount& out : bundles_.bundle(from)) {
        try_partners(from, out.item_class, key, limits, best);
      }
    }
    if (best.out < 0) return false;
    apply(best);
    return true;
  }

  void try_partners(size_t from, int32_t out, Key key, const HomeLimits& limits,
                    Move& best) {
    for (size_t to = 0; to < bundles_.num_ranks() && budget_ > 0; ++to) {
      if (to / tp_ == from / tp_ || !bundles_.may_own(to, out)) continue;
      // A partner already above the best result cannot improve on it.
      if (homes_[to / tp_].*key >= best.key) continue;
      consider({from, to, out, -1, 0}, key, limits, best);
      for (const ClassCount& in : bundles_.bundle(to)) {
        if (in.item_class == out || !bundles_.may_own(from, in.item_class)) {
          continue;
        }
        consider({from, to, out, in.item_class, 0}, key, limits, best);
      }
    }
  }

  void consider(Move move, Key key, const HomeLimits& limits, Move& best) {
    --budget_;
    const HomeWeight w = moved(move);
    if (w.*key <= 0) return;
    HomeWeight a = homes_[move.from / tp_], b = homes_[move.to / tp_];
    a -= w;
    b += w;
    move.key = std::max(a.*key, b.*key);
    if (move.key >= best.key || !limits.allow(a) || !limits.allow(b)) return;
    if (within_loads(move)) best = move;
  }

  bool within_loads(const Move& move) const {
    for (size_t p = 0; p < load_limits_.size(); ++p) {
      int64_t delta = load(move.out, p);
      if (move.in >= 0) delta -= load(move.in, p);
      if (bundles_.load(move.from)[p] - delta > load_limits_[p]) return false;
      if (bundles_.load(move.to)[p] + delta > load_limits_[p]) return false;
    }
    return true;
  }
  int64_t load(int32_t c, size_t p) const {
    return bundles_.classes()[static_cast<size_t>(c)].load[p];
  }

  void apply(const Move& move) {
    const HomeWeight w = moved(move);
    bundles_.add(move.from, move.out, -1);
    bundles_.add(move.to, move.out, 1);
    if (move.in >= 0) {
      bundles_.add(move.to, move.in, -1);
      bundles_.add(move.from, move.in, 1);
    }
    homes_[move.from / tp_] -= w;
    homes_[move.to / tp_] += w;
  }

  Bundles& bundles_;
  size_t tp_;
  int64_t element_limit_;
  int64_t budget_;
  std::vector<HomeWeight> items_;  // per class
  std::vector<HomeWeight> homes_;
  std::vector<int64_t> load_limits_;  // largest load of the start
};

}  // namespace

void level_homes(Bundles& bundles, int32_t tp, int64_t element_limit,
                 int64_t budget) {
  if (bundles.num_ranks() <= static_cast<size_t>(tp)) return;
  Leveling(bundles, tp, element_limit, budget).run();
}

}  // namespace canzona
