#include "canzona/plan/search/bundles.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <queue>

namespace canzona::plan {

Bundles::Bundles(const std::vector<ItemClass>& classes,
                 std::vector<int64_t> steps, std::vector<int32_t> zones)
    : classes_(&classes),
      steps_(std::move(steps)),
      zones_(std::move(zones)),
      bundles_(zones_.size()),
      loads_(zones_.size() * steps_.size(), 0) {}

namespace {

// Returns a number for each rank that is the same for ranks that are in the
// same sets.
std::vector<int32_t> zones_by_sets(size_t num_ranks, const OwnerSets& sets) {
  std::vector<int32_t> zone(num_ranks, 0);
  int32_t num_zones = 1;
  for (const auto& set : sets) {
    std::map<int32_t, int32_t> renamed;
    for (const int32_t rank : set) {
      int32_t& own = zone[static_cast<size_t>(rank)];
      const auto [it, fresh] = renamed.emplace(own, num_zones);
      if (fresh) ++num_zones;
      own = it->second;
    }
  }
  return zone;
}

}  // namespace

Bundles::Bundles(const std::vector<ItemClass>& classes,
                 std::vector<int64_t> steps, size_t num_ranks,
                 const OwnerSets& sets)
    : Bundles(classes, std::move(steps), zones_by_sets(num_ranks, sets)) {
  sets_ = &sets;
}

bool Bundles::is_in_set(size_t rank, int32_t set) const {
  const auto& ranks = (*sets_)[static_cast<size_t>(set)];
  return std::binary_search(ranks.begin(), ranks.end(),
                            static_cast<int32_t>(rank));
}

std::vector<size_t> Bundles::owners(int32_t zone) const {
  std::vector<size_t> out;
  if (sets_ != nullptr) {
    const auto& ranks = (*sets_)[static_cast<size_t>(zone)];
    out.assign(ranks.begin(), ranks.end());
    return out;
  }
  for (size_t r = 0; r < num_ranks(); ++r)
    if (zone == kAnyZone || zone == zones_[r]) out.push_back(r);
  return out;
}

void Bundles::add(size_t rank, int32_t item_class, int32_t count) {
  auto& items = bundles_[rank];
  auto it = std::find_if(items.begin(), items.end(), [&](const ClassCount& c) {
    return c.item_class >= item_class;
  });
  if (it != items.end() && it->item_class == item_class) {
    it->count += count;
    if (it->count == 0) items.erase(it);
  } else if (count != 0) {
    items.insert(it, {item_class, count});
  }
  const auto& load = (*classes_)[static_cast<size_t>(item_class)].load;
  for (size_t p = 0; p < dims(); ++p) {
    loads_[rank * dims() + p] += load[p] * count;
  }
}

int64_t Bundles::period_load(size_t rank) const {
  int64_t sum = 0;
  for (size_t p = 0; p < dims(); ++p) sum += steps_[p] * load(rank)[p];
  return sum;
}

int64_t Bundles::objective() const {
  int64_t sum = 0;
  for (size_t p = 0; p < dims(); ++p) {
    int64_t most = 0;
    for (size_t r = 0; r < num_ranks(); ++r) most = std::max(most, load(r)[p]);
    sum += steps_[p] * most;
  }
  return sum;
}

namespace {

int64_t period_load_of(const Bundles& bundles, const ItemClass& c) {
  int64_t sum = 0;
  for (size_t p = 0; p < bundles.dims(); ++p) {
    sum += bundles.steps()[p] * c.load[p];
  }
  return sum;
}

std::vector<int32_t> classes_longest_first(const Bundles& bundles) {
  const auto& classes = bundles.classes();
  std::vector<int32_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return period_load_of(bundles, classes[static_cast<size_t>(a)]) >
           period_load_of(bundles, classes[static_cast<size_t>(b)]);
  });
  return order;
}

// A heap of the ranks of one zone, or of all ranks, with the least loaded on
// top. An entry becomes stale when an item of another heap goes to its rank; it
// is then pushed again.
class LeastLoaded {
 public:
  LeastLoaded(const Bundles& bundles, int32_t zone) : bundles_(bundles) {
    for (const size_t rank : bundles.owners(zone)) push(rank);
  }
  size_t take() {
    while (true) {
      auto [load, rank] = heap_.top();
      heap_.pop();
      if (bundles_.period_load(rank) == load) return rank;
      push(rank);
    }
  }
  void push(size_t rank) { heap_.push({bundles_.period_load(rank), rank}); }

 private:
  using Entry = std::pair<int64_t, size_t>;
  const Bundles& bundles_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

void deal_in_order(Bundles& bundles, const std::vector<int32_t>& order) {
  std::map<int32_t, LeastLoaded> heaps;  // by zone
  for (const int32_t c : order) {
    const ItemClass& item = bundles.classes()[static_cast<size_t>(c)];
    LeastLoaded& heap =
        heaps.try_emplace(item.zone, bundles, item.zone).first->second;
    for (int64_t i = 0; i < item.count; ++i) {
      const size_t rank = heap.take();
      bundles.add(rank, c, 1);
      heap.push(rank);
    }
  }
}

}  // namespace

void deal_longest_first(Bundles& bundles) {
  deal_in_order(bundles, classes_longest_first(bundles));
}

void deal_narrowest_first(Bundles& bundles) {
  std::map<int32_t, size_t> num_owners;  // by zone
  for (const ItemClass& c : bundles.classes())
    if (!num_owners.contains(c.zone))
      num_owners[c.zone] = bundles.owners(c.zone).size();
  std::vector<int32_t> order = classes_longest_first(bundles);
  const auto owners = [&](int32_t c) {
    return num_owners[bundles.classes()[static_cast<size_t>(c)].zone];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return owners(a) < owners(b); });
  deal_in_order(bundles, order);
}

namespace {

// Up to two items of one rank, by class; -1: none.
using Pick = std::array<int32_t, 2>;

constexpr size_t kMaxPicks = 400;  // per rank; bounds ranks of many classes

std::vector<Pick> picks_of(const Bundles& bundles, size_t rank,
                           bool with_none) {
  const auto& items = bundles.bundle(rank);
  std::vector<Pick> picks;
  if (with_none) picks.push_back({-1, -1});
  for (const ClassCount& c : items) picks.push_back({c.item_class, -1});
  for (size_t i = 0; i < items.size() && picks.size() < kMaxPicks; ++i) {
    for (size_t j = i; j < items.size() && picks.size() < kMaxPicks; ++j) {
      if (i == j && items[i].count < 2) continue;
      picks.push_back({items[i].item_class, items[j].item_class});
    }
  }
  return picks;
}

// One run of the local search. `maxima_` keeps, per dimension, the three
// largest loads, so that the effect of changing two ranks is known at once.
class Exchange {
 public:
  Exchange(Bundles& bundles, int64_t budget)
      : bundles_(bundles), budget_(budget), maxima_(bundles.dims()) {
    refresh_maxima();
  }

  void run() {
    while (budget_ > 0 && improve_once()) {
    }
  }

 private:
  struct Top {
    size_t rank = 0;
    int64_t load = -1;
  };
  struct Maximum {
    std::array<Top, 3> top;
    int64_t ranks_at_top = 0;
  };
  struct Score {  // smaller is better, field by field
    int64_t objective = 0;
    int64_t critical = 0;
    int64_t larger = 0;  // the larger period load of the two ranks
    friend auto operator<=>(const Score&, const Score&) = default;
  };

  void refresh_maxima() {
    for (size_t p = 0; p < bundles_.dims(); ++p) {
      Maximum m;
      for (size_t r = 0; r < bundles_.num_ranks(); ++r) insert(m, r, p);
      m.ranks_at_top = count_at(m.top[0].load, p);
      maxima_[p] = m;
    }
  }

  void insert(Maximum& m, size_t rank, size_t p) const {
    Top entry{rank, bundles_.load(rank)[p]};
    for (Top& t : m.top) {
      if (entry.load > t.load) std::swap(entry, t);
    }
  }

  int64_t count_at(int64_t load, size_t p) const {
    int64_t n = 0;
    for (size_t r = 0; r < bundles_.num_ranks(); ++r) {
      n += bundles_.load(r)[p] == load;
    }
    return n;
  }

  int64_t moved(const Pick& out, const Pick& in, size_t p) const {
    int64_t sum = 0;
    for (int32_t c : out) sum += c < 0 ? 0 : class_load(c, p);
    for (int32_t c : in) sum -= c < 0 ? 0 : class_load(c, p);
    return sum;
  }
  int64_t class_load(int32_t c, size_t p) const {
    return bundles_.classes()[static_cast<size_t>(c)].load[p];
  }

  // Returns the objective if `from` gives `out` to `to` for `in`.
  Score score(size_t from, size_t to, const Pick& out, const Pick& in) const {
    Score s;
    int64_t period_from = 0, period_to = 0;
    for (size_t p = 0; p < bundles_.dims(); ++p) {
      const int64_t delta = moved(out, in, p);
      const int64_t a = bundles_.load(from)[p] - delta;
      const int64_t b = bundles_.load(to)[p] + delta;
      const int64_t top = maxima_[p].top[0].load;
      const int64_t most = std::max({a, b, others(from, to, p)});
      s.objective += bundles_.steps()[p] * most;
      s.critical += most == top ? critical_ranks(from, to, a, b, p) : 0;
      period_from += bundles_.steps()[p] * a;
      period_to += bundles_.steps()[p] * b;
    }
    s.larger = std::max(period_from, period_to);
    return s;
  }

  int64_t others(size_t from, size_t to, size_t p) const {
    for (const Top& t : maxima_[p].top) {
      if (t.load >= 0 && t.rank != from && t.rank != to) return t.load;
    }
    return 0;
  }

  int64_t critical_ranks(size_t from, size_t to, int64_t a, int64_t b,
                         size_t p) const {
    const int64_t top = maxima_[p].top[0].load;
    int64_t n = maxima_[p].ranks_at_top;
    n -= bundles_.load(from)[p] == top;
    n -= bundles_.load(to)[p] == top;
    return n + (a == top) + (b == top);
  }

  Score current() const {
    Score s;
    for (size_t p = 0; p < bundles_.dims(); ++p) {
      s.objective += bundles_.steps()[p] * maxima_[p].top[0].load;
      s.critical += maxima_[p].ranks_at_top;
    }
    return s;
  }

  bool fits(size_t rank, const Pick& pick) const {
    for (int32_t c : pick) {
      if (c >= 0 && !bundles_.may_own(rank, c)) return false;
    }
    return true;
  }

  // Returns the ranks to exchange with, the least loaded first.
  std::vector<size_t> partners(size_t from) const {
    std::vector<size_t> order;
    std::vector<int64_t> loads(bundles_.num_ranks());
    for (size_t r = 0; r < bundles_.num_ranks(); ++r) {
      loads[r] = bundles_.period_load(r);
      if (r != from) order.push_back(r);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return loads[a] < loads[b]; });
    return order;
  }

  bool improve_once() {
    for (size_t p = 0; p < bundles_.dims(); ++p) {
      if (bundles_.steps()[p] == 0 || maxima_[p].top[0].load <= 0) continue;
      if (improve_rank(maxima_[p].top[0].rank)) return true;
    }
    return false;
  }

  // Ranks with equal bundles and zones offer the same exchanges; one of each
  // run of equals is enough.
  bool same_offer(size_t a, size_t b) const {
    return bundles_.zone(a) == bundles_.zone(b) &&
           bundles_.bundle(a) == bundles_.bundle(b);
  }

  bool improve_rank(size_t from) {
    const Score now = current();
    const std::vector<Pick> outs = picks_of(bundles_, from, false);
    Score best = now;
    best.larger = INT64_MAX;
    size_t best_to = 0;
    Pick best_out{}, best_in{};
    bool found = false;
    size_t last = from;
    for (size_t to : partners(from)) {
      if (last != from && same_offer(last, to)) continue;
      last = to;
      if (found && !worth_trying(from, to, best)) break;
      for (const Pick& in : picks_of(bundles_, to, true)) {
        if (!fits(from, in)) continue;
        for (const Pick& out : outs) {
          if (--budget_ < 0) break;
          if (!promising(from, to, out, in) || !fits(to, out)) continue;
          const Score s = score(from, to, out, in);
          const bool better =
              s.objective < now.objective ||
              (s.objective == now.objective && s.critical < now.critical);
          if (!better || !(s < best)) continue;
          best = s;
          best_to = to;
          best_out = out;
          best_in = in;
          found = true;
        }
      }
    }
    if (found) apply(from, best_to, best_out, best_in);
    return found;
  }

  // With one dimension an exchange must unload the critical rank and leave the
  // partner below the maximum.
  bool promising(size_t from, size_t to, const Pick& out,
                 const Pick& in) const {
    if (bundles_.dims() > 1) return true;
    const int64_t delta = moved(out, in, 0);
    return delta > 0 && bundles_.load(to)[0] + delta < bundles_.load(from)[0];
  }

  // No partner can end with a larger load below the mean of the two ranks.
  bool worth_trying(size_t from, size_t to, const Score& best) const {
    if (bundles_.dims() > 1) return true;
    return (bundles_.load(from)[0] + bundles_.load(to)[0]) / 2 < best.larger;
  }

  void apply(size_t from, size_t to, const Pick& out, const Pick& in) {
    for (int32_t c : out) transfer(from, to, c);
    for (int32_t c : in) transfer(to, from, c);
    refresh_maxima();
  }
  void transfer(size_t from, size_t to, int32_t c) {
    if (c < 0) return;
    bundles_.add(from, c, -1);
    bundles_.add(to, c, 1);
  }

  Bundles& bundles_;
  int64_t budget_;
  std::vector<Maximum> maxima_;
};

}  // namespace

void exchange_items(Bundles& bundles, int64_t budget) {
  if (bundles.num_ranks() < 2) return;
  Exchange(bundles, budget).run();
}

}  // namespace canzona::plan
