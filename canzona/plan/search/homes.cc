#include "canzona/plan/search/bundles.h"

#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace canzona::plan {

HomeWeight weigh_item(const Bundles& bundles, int32_t item_class) {
  const ItemClass& c = bundles.classes()[static_cast<size_t>(item_class)];
  HomeWeight w{0, c.home_bytes + c.owner_bytes, c.elements};
  for (size_t p = 0; p < bundles.dims(); ++p) {
    w.cost += bundles.steps()[p] * c.load[p];
  }
  return w;
}

HomeWeight weigh_bundle(const Bundles& bundles, size_t rank) {
  HomeWeight sum;
  for (const ClassCount& c : bundles.bundle(rank)) {
    sum.add(weigh_item(bundles, c.item_class), c.count);
  }
  return sum;
}

size_t largest_home(const std::vector<HomeWeight>& homes,
                    int64_t HomeWeight::*key) {
  size_t best = 0;
  for (size_t h = 1; h < homes.size(); ++h) {
    if (homes[h].*key > homes[best].*key) best = h;
  }
  return best;
}

int64_t largest(const std::vector<HomeWeight>& homes,
                int64_t HomeWeight::*key) {
  return homes[largest_home(homes, key)].*key;
}

HomeLimits limits_for_memory(const std::vector<HomeWeight>& homes,
                             HomeLimits limits) {
  double sum = 0;
  for (const HomeWeight& home : homes) sum += static_cast<double>(home.cost);
  const double mean = sum / static_cast<double>(homes.size());
  limits.cost = std::max(largest(homes, &HomeWeight::cost),
                         static_cast<int64_t>(mean * kLevelCost));
  return limits;
}

namespace {

// Bounds the time for hundreds of thousands of homes. Stages of up to 65,536
// ranks never reach it; they stop after 12 rounds per home, and real models
// take a few hundred rounds.
constexpr int64_t kMostSwapsLookedAt = int64_t{1} << 36;

class Grouping {
 public:
  using Key = int64_t HomeWeight::*;

  Grouping(const Bundles& bundles, int32_t tp)
      : bundles_(bundles),
        tp_(static_cast<size_t>(tp)),
        homes_(bundles.num_ranks() / tp_),
        slots_(homes_.size()) {
    for (size_t r = 0; r < bundles.num_ranks(); ++r) {
      weights_.push_back(weigh_bundle(bundles, r));
    }
  }

  std::vector<size_t> run(const HomeLimits& budgets) {
    deal();
    // Each round looks at all swaps of one home.
    const auto looks = static_cast<int64_t>(homes_.size() * tp_ * tp_);
    auto rounds = std::min(static_cast<int64_t>(12 * homes_.size()),
                           kMostSwapsLookedAt / looks);
    level(homes_, budgets, [&](Key key, const HomeLimits& limits) {
      return rounds-- > 0 && relieve(key, limits);
    });
    std::vector<size_t> bundle_at;
    for (const auto& slot : slots_) {
      bundle_at.insert(bundle_at.end(), slot.begin(), slot.end());
    }
    return bundle_at;
  }

 private:
  struct Swap {
    size_t to = 0, i = 0, j = 0;
    int64_t key = 0;
  };

  int32_t zone(size_t home) const { return bundles_.zone(home * tp_); }

  // Deals bundles, the most expensive first, each to the cheapest home of its
  // zone that has room for another bundle.
  void deal() {
    std::vector<size_t> order(weights_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(weights_[a].cost, weights_[a].memory) >
             std::pair(weights_[b].cost, weights_[b].memory);
    });
    // Homes with room for another bundle, by cost, memory and number, for each
    // zone.
    using OpenHome = std::tuple<int64_t, int64_t, size_t>;
    std::map<int32_t, std::set<OpenHome>> open;
    for (size_t h = 0; h < homes_.size(); ++h) open[zone(h)].insert({0, 0, h});
    for (size_t bundle : order) {
      std::set<OpenHome>& of_zone = open[bundles_.zone(bundle)];
      const size_t home = std::get<size_t>(*of_zone.begin());
      of_zone.erase(of_zone.begin());
      slots_[home].push_back(bundle);
      homes_[home] += weights_[bundle];
      if (slots_[home].size() < tp_)
        of_zone.insert({homes_[home].cost, homes_[home].memory, home});
    }
  }

  // Makes the swap that lowers the largest `key` most within the limits;
  // returns false if there is none.
  bool relieve(Key key, const HomeLimits& limits) {
    const size_t from = largest_home(homes_, key);
    Swap best{0, 0, 0, homes_[from].*key};
    for (size_t to = 0; to < homes_.size(); ++to) {
      if (to == from || zone(to) != zone(from)) continue;
      for (size_t i = 0; i < tp_; ++i) {
        for (size_t j = 0; j < tp_; ++j) {
          consider(from, {to, i, j, 0}, key, limits, best);
        }
      }
    }
    if (best.key == homes_[from].*key) return false;
    apply(from, best);
    return true;
  }

  HomeWeight moved(size_t from, const Swap& s) const {
    HomeWeight w = weights_[slots_[from][s.i]];
    return w -= weights_[slots_[s.to][s.j]];
  }

  void consider(size_t from, Swap s, Key key, const HomeLimits& limits,
                Swap& best) const {
    const HomeWeight w = moved(from, s);
    if (w.*key <= 0) return;
    HomeWeight a = homes_[from], b = homes_[s.to];
    a -= w;
    b += w;
    s.key = std::max(a.*key, b.*key);
    if (s.key < best.key && limits.allow(a) && limits.allow(b)) best = s;
  }

  void apply(size_t from, const Swap& s) {
    const HomeWeight w = moved(from, s);
    homes_[from] -= w;
    homes_[s.to] += w;
    std::swap(slots_[from][s.i], slots_[s.to][s.j]);
  }

  const Bundles& bundles_;
  size_t tp_;
  std::vector<HomeWeight> weights_;  // per bundle
  std::vector<HomeWeight> homes_;
  std::vector<std::vector<size_t>> slots_;
};

}  // namespace

std::vector<size_t> group_into_homes(const Bundles& bundles, int32_t tp,
                                     const HomeLimits& budgets) {
  return Grouping(bundles, tp).run(budgets);
}

Bundles permuted(const Bundles& bundles, const std::vector<size_t>& bundle_at) {
  std::vector<int32_t> zones;
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    zones.push_back(bundles.zone(r));
  }
  Bundles out(bundles.classes(),
              {bundles.steps().begin(), bundles.steps().end()}, zones);
  for (size_t r = 0; r < bundle_at.size(); ++r) {
    for (const ClassCount& c : bundles.bundle(bundle_at[r])) {
      out.add(r, c.item_class, c.count);
    }
  }
  return out;
}

namespace {

// Once exchanges of single items no longer help, an exchange may move this many
// items of one class, for as many of another class as cost the same, and is
// tried with this many homes.
constexpr int32_t kFewItems = 6;
constexpr int64_t kFewHomes = 8;
// While a budget is exceeded, loads this far above the mean may be reached.
constexpr double kLooseLoad = 1.005;
// Memory this close to the mean needs no more leveling.
constexpr double kLevelMemory = 1.0005;

// Levels homes by exchanging items. Loads stay within the largest one at the
// start, or within kLooseLoad while a budget is exceeded.
class Leveling {
 public:
  using Key = int64_t HomeWeight::*;

  Leveling(Bundles& bundles, int32_t tp, int64_t budget)
      : bundles_(bundles),
        tp_(static_cast<size_t>(tp)),
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

  void run(const HomeLimits& budgets) {
    // Budgets take precedence: while one is exceeded, loads slightly above the
    // mean count as level.
    if (largest(homes_, &HomeWeight::elements) > budgets.elements ||
        largest(homes_, &HomeWeight::memory) > budgets.memory) {
      loosen_loads();
    }
    level(homes_, budgets, [&](Key key, const HomeLimits& limits) {
      if (key == &HomeWeight::memory && memory_is_level()) return false;
      return relieve(key, limits);
    });
  }

 private:
  struct Move {
    size_t from = 0, to = 0;
    ClassCount out{-1, 0}, in{-1, 0};
    int64_t key = 0;
  };

  void loosen_loads() {
    for (size_t p = 0; p < load_limits_.size(); ++p) {
      double sum = 0;
      for (size_t r = 0; r < bundles_.num_ranks(); ++r) {
        sum += static_cast<double>(bundles_.load(r)[p]);
      }
      const double level =
          sum / static_cast<double>(bundles_.num_ranks()) * kLooseLoad;
      load_limits_[p] = std::max(load_limits_[p], static_cast<int64_t>(level));
    }
  }

  bool memory_is_level() const {
    double sum = 0;
    for (const HomeWeight& home : homes_) {
      sum += static_cast<double>(home.memory);
    }
    const int64_t most = largest(homes_, &HomeWeight::memory);
    return static_cast<double>(most) * static_cast<double>(homes_.size()) <=
           sum * kLevelMemory;
  }

  HomeWeight moved(const Move& move) const {
    HomeWeight w;
    w.add(items_[static_cast<size_t>(move.out.item_class)], move.out.count);
    if (move.in.count > 0) {
      w.add(items_[static_cast<size_t>(move.in.item_class)], -move.in.count);
    }
    return w;
  }

  // Makes one exchange that lowers the home with the largest `key`: of single
  // items with any rank, otherwise of a few items with the homes where `key` is
  // smallest.
  bool relieve(Key key, const HomeLimits& limits) {
    const size_t home = largest_home(homes_, key);
    const std::vector<size_t> others = smallest_first(key);
    return relieve(home, others, 1, key, limits) ||
           relieve(home,
                   {others.begin(),
                    others.begin() +
                        std::min<int64_t>(kFewHomes,
                                          static_cast<int64_t>(others.size()))},
                   kFewItems, key, limits);
  }

  std::vector<size_t> smallest_first(Key key) const {
    std::vector<size_t> order(homes_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return homes_[a].*key < homes_[b].*key;
    });
    return order;
  }

  bool relieve(size_t home, const std::vector<size_t>& others, int32_t items,
               Key key, const HomeLimits& limits) {
    Move best;
    best.key = homes_[home].*key;
    for (size_t from = home * tp_; from < (home + 1) * tp_; ++from) {
      for (size_t other : others) {
        // A partner already above the best result cannot improve on it.
        if (other == home || homes_[other].*key >= best.key) continue;
        for (size_t to = other * tp_; to < (other + 1) * tp_; ++to) {
          if (budget_ <= 0) break;
          try_exchanges(from, to, items, key, limits, best);
        }
      }
    }
    if (best.out.count == 0) return false;
    apply(best);
    return true;
  }

  void try_exchanges(size_t from, size_t to, int32_t items, Key key,
                     const HomeLimits& limits, Move& best) {
    for (const ClassCount& out : bundles_.bundle(from)) {
      if (!bundles_.may_own(to, out.item_class)) continue;
      for (int32_t n = 1; n <= std::min(items, out.count); ++n) {
        const ClassCount given{out.item_class, n};
        consider({from, to, given, {-1, 0}, 0}, key, limits, best);
        for (const ClassCount& in : bundles_.bundle(to)) {
          if (in.item_class == out.item_class ||
              !bundles_.may_own(from, in.item_class)) {
            continue;
          }
          for (int32_t k = 1; k <= std::min(items, in.count); ++k) {
            consider({from, to, given, {in.item_class, k}, 0}, key, limits,
                     best);
          }
          if (items > 1) {
            try_matched(from, to, given, in, key, limits, best);
            try_matched_back(from, to, out,
                             {in.item_class, std::min(n, in.count)}, key,
                             limits, best);
          }
        }
      }
    }
  }

  // Returns how many items of class `c` cost as much as `given`, rounded down.
  int32_t match(const ClassCount& given, int32_t c) const {
    const int64_t cost =
        items_[static_cast<size_t>(given.item_class)].cost * given.count;
    const int64_t one = items_[static_cast<size_t>(c)].cost;
    return one <= 0
               ? 0
               : static_cast<int32_t>(std::min<int64_t>(cost / one, 1 << 20));
  }

  // Tries to exchange `given` for as many items of the other class as cost the
  // same, or one more.
  void try_matched(size_t from, size_t to, const ClassCount& given,
                   const ClassCount& in, Key key, const HomeLimits& limits,
                   Move& best) {
    const int32_t even = match(given, in.item_class);
    for (int32_t k = std::max(even, kFewItems + 1); k <= even + 1; ++k) {
      if (k > in.count) break;
      consider({from, to, given, {in.item_class, k}, 0}, key, limits, best);
    }
  }
  void try_matched_back(size_t from, size_t to, const ClassCount& out,
                        const ClassCount& taken, Key key,
                        const HomeLimits& limits, Move& best) {
    const int32_t even = match(taken, out.item_class);
    for (int32_t n = std::max(even, kFewItems + 1); n <= even + 1; ++n) {
      if (n > out.count) break;
      consider({from, to, {out.item_class, n}, taken, 0}, key, limits, best);
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
      const int64_t delta = load(move.out, p) - load(move.in, p);
      if (bundles_.load(move.from)[p] - delta > load_limits_[p]) return false;
      if (bundles_.load(move.to)[p] + delta > load_limits_[p]) return false;
    }
    return true;
  }
  int64_t load(const ClassCount& c, size_t p) const {
    if (c.count == 0) return 0;
    return bundles_.classes()[static_cast<size_t>(c.item_class)].load[p] *
           c.count;
  }

  void apply(const Move& move) {
    const HomeWeight w = moved(move);
    transfer(move.from, move.to, move.out);
    transfer(move.to, move.from, move.in);
    homes_[move.from / tp_] -= w;
    homes_[move.to / tp_] += w;
  }
  void transfer(size_t from, size_t to, const ClassCount& c) {
    if (c.count == 0) return;
    bundles_.add(from, c.item_class, -c.count);
    bundles_.add(to, c.item_class, c.count);
  }

  Bundles& bundles_;
  size_t tp_;
  int64_t budget_;
  std::vector<HomeWeight> items_;  // per class
  std::vector<HomeWeight> homes_;
  std::vector<int64_t> load_limits_;  // largest load of the start
};

}  // namespace

void level_homes(Bundles& bundles, int32_t tp, const HomeLimits& budgets,
                 int64_t budget) {
  if (bundles.num_ranks() <= static_cast<size_t>(tp)) return;
  Leveling(bundles, tp, budget).run(budgets);
}

}  // namespace canzona::plan
