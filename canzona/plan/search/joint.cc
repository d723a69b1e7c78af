#include "canzona/plan/search/joint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "canzona/plan/makespan/bound.h"
#include "canzona/plan/search/bundles.h"

namespace canzona::plan {
namespace {

class PatternDeal {
 public:
  explicit PatternDeal(Bundles& bundles) : bundles_(bundles) {
    for (int64_t size : distinct_loads(bundles.classes())) {
      items_.push_back({size, 0});
      classes_.emplace_back();
    }
    left_.assign(bundles.classes().size(), 0);
    for (size_t c = 0; c < left_.size(); ++c) {
      const ItemClass& item = bundles.classes()[c];
      left_[c] = item.count;
      if (item.load[0] <= 0 || item.count == 0) continue;
      const size_t i = index_of(item.load[0]);
      items_[i].count += item.count;
      classes_[i].push_back(static_cast<int32_t>(c));
    }
  }

  bool run(int64_t capacity) {
    const auto ranks = static_cast<int64_t>(bundles_.num_ranks());
    PatternSolution solution = relax_patterns(items_, ranks, capacity);
    if (solution.status != PatternSolution::kFits) return false;
    size_t rank = deal_whole(solution);
    while (rank < bundles_.num_ranks() && fill(rank, capacity)) ++rank;
    deal_rest();
    return true;
  }

 private:
  size_t index_of(int64_t size) const {
    auto it = std::find_if(items_.begin(), items_.end(),
                           [&](const SizeCount& s) { return s.size == size; });
    return static_cast<size_t>(it - items_.begin());
  }

  size_t deal_whole(const PatternSolution& solution) {
    size_t rank = 0;
    for (size_t p = 0; p < solution.patterns.size(); ++p) {
      auto times =
          static_cast<int64_t>(std::floor(solution.fractions[p] + 1e-6));
      while (times-- > 0 && rank < bundles_.num_ranks() &&
             available(solution.patterns[p])) {
        give(rank++, solution.patterns[p]);
      }
    }
    return rank;
  }

  bool available(const std::vector<int64_t>& pattern) const {
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] > items_[i].count) return false;
    }
    return true;
  }

  // Fills a rank as full as possible around the largest item that is left.
  bool fill(size_t rank, int64_t capacity) {
    auto largest = std::find_if(items_.begin(), items_.end(),
                                [](const SizeCount& s) { return s.count > 0; });
    if (largest == items_.end()) return false;
    std::vector<double> values;
    for (const SizeCount& s : items_) {
      values.push_back(static_cast<double>(s.size));
    }
    --largest->count;
    std::optional<Pattern> best =
        best_pattern(items_, values, capacity - largest->size);
    ++largest->count;
    if (!best) return false;
    ++best->counts[static_cast<size_t>(largest - items_.begin())];
    give(rank, best->counts);
    return true;
  }

  void give(size_t rank, const std::vector<int64_t>& pattern) {
    for (size_t i = 0; i < pattern.size(); ++i) {
      for (int64_t n = 0; n < pattern[i]; ++n) give_one(rank, i);
      items_[i].count -= pattern[i];
    }
  }

  // Gives an item of the class with most left among those of one size, so that
  // all ranks get alike mixtures.
  void give_one(size_t rank, size_t i) {
    int32_t most = classes_[i].front();
    for (int32_t c : classes_[i]) {
      if (left(c) > left(most)) most = c;
    }
    --left(most);
    bundles_.add(rank, most, 1);
  }
  int64_t& left(int32_t c) { return left_[static_cast<size_t>(c)]; }

  void deal_rest() {
    for (size_t c = 0; c < left_.size(); ++c) {
      for (; left_[c] > 0; --left_[c]) {
        size_t least = 0;
        for (size_t r = 1; r < bundles_.num_ranks(); ++r) {
          if (bundles_.load(r)[0] < bundles_.load(least)[0]) least = r;
        }
        bundles_.add(least, static_cast<int32_t>(c), 1);
      }
    }
  }

  Bundles& bundles_;
  std::vector<SizeCount> items_;
  std::vector<std::vector<int32_t>> classes_;  // per size
  std::vector<int64_t> left_;                  // per class
};

bool applies(const Bundles& bundles) {
  if (bundles.dims() != 1) return false;
  for (const ItemClass& c : bundles.classes()) {
    if (c.zone != kAnyZone) return false;
  }
  return distinct_loads(bundles.classes()).size() <= kMaxPatternSizes;
}

}  // namespace

std::vector<int64_t> distinct_loads(const std::vector<ItemClass>& classes) {
  std::vector<int64_t> sizes;
  for (const ItemClass& c : classes) {
    if (c.load[0] > 0 && c.count > 0) sizes.push_back(c.load[0]);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

bool deal_by_patterns(Bundles& bundles, int64_t capacity) {
  if (!applies(bundles)) return false;
  return PatternDeal(bundles).run(capacity);
}

namespace {

constexpr int64_t kExchangeBudget = 4'000'000;
constexpr int64_t kLevelBudget = 4'000'000;
// An objective within 1/200 of the bound counts as good enough.
constexpr int64_t kNearly = 200;
// Capacities tried above the bound: in steps of 1/2048, at most this many.
constexpr int kMaxCapacities = 48;

class JointSearch {
 public:
  JointSearch(const std::vector<ItemClass>& classes,
              const std::vector<int64_t>& steps,
              const std::vector<int32_t>& zones, int32_t tp,
              const Budgets& budgets)
      : classes_(classes),
        steps_(steps),
        zones_(zones),
        tp_(tp),
        budgets_(budgets),
        best_(classes, steps, zones) {}

  Bundles run() {
    search_loads();
    const HomeLimits limits{INT64_MAX, budgets_.memory, element_limit()};
    Bundles grouped = permuted(best_, group_into_homes(best_, tp_, limits));
    level_homes(grouped, tp_, limits, kLevelBudget);
    return grouped;
  }

  // Returns the bundles with the best loads, regardless of homes.
  const Bundles& search_loads() {
    best_ = fresh();
    deal_longest_first(best_);
    exchange_items(best_, kExchangeBudget);
    bound_ = objective_bound(classes_, steps_, zones_, best_.objective());
    if (budgets_.mixed && best_.objective() <= bound_ + bound_ / kNearly) {
      return best_;
    }
    try_patterns();
    try_zones();
    return best_;
  }

 private:
  Bundles fresh() const { return Bundles(classes_, steps_, zones_); }

  int64_t element_limit() const {
    if (budgets_.share <= 0) return INT64_MAX;
    double sum = 0;
    int64_t largest = 0;
    for (const ItemClass& c : classes_) {
      sum += static_cast<double>(c.elements) * static_cast<double>(c.count);
      largest = std::max(largest, c.elements);
    }
    const double mean = sum * tp_ / static_cast<double>(zones_.size());
    return std::max(largest, static_cast<int64_t>(mean * budgets_.share));
  }

  void try_patterns() {
    if (steps_.size() != 1) return;
    for (int i = 0; i < kMaxCapacities; ++i) {
      const int64_t capacity = bound_ + bound_ / 2048 * i;
      if (best_.objective() <= capacity) return;
      Bundles candidate = fresh();
      if (!deal_by_patterns(candidate, capacity)) return;
      exchange_items(candidate, kExchangeBudget);
      if (candidate.objective() < best_.objective()) {
        best_ = std::move(candidate);
      }
    }
  }

  // Solves zones one by one: each takes its own items and an equal share of
  // those that any rank may own.
  void try_zones() {
    std::vector<int32_t> distinct = zones_;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()),
                   distinct.end());
    if (distinct.size() < 2 || best_.objective() <= bound_) return;
    Bundles candidate = fresh();
    for (size_t i = 0; i < distinct.size(); ++i) {
      deal_zone(distinct[i], static_cast<int64_t>(i),
                static_cast<int64_t>(distinct.size()), candidate);
    }
    exchange_items(candidate, kExchangeBudget);
    if (candidate.objective() < best_.objective()) best_ = std::move(candidate);
  }

  void deal_zone(int32_t zone, int64_t number, int64_t num_zones,
                 Bundles& out) const {
    std::vector<ItemClass> own = classes_;
    for (size_t c = 0; c < own.size(); ++c) {
      if (own[c].zone == kAnyZone) {
        // Classes begin their remainders at different zones.
        const int64_t turn = (number + static_cast<int64_t>(c)) % num_zones;
        own[c].count = own[c].count / num_zones +
                       (turn < own[c].count % num_zones ? 1 : 0);
      } else if (own[c].zone != zone) {
        own[c].count = 0;
      }
      own[c].zone = kAnyZone;
    }
    std::vector<size_t> ranks;
    for (size_t r = 0; r < zones_.size(); ++r) {
      if (zones_[r] == zone) ranks.push_back(r);
    }
    const std::vector<int32_t> same(ranks.size(), 0);
    JointSearch search(own, steps_, same, 1, Budgets{});
    const Bundles& solved = search.search_loads();
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (const ClassCount& c : solved.bundle(i)) {
        out.add(ranks[i], c.item_class, c.count);
      }
    }
  }

  const std::vector<ItemClass>& classes_;
  const std::vector<int64_t>& steps_;
  const std::vector<int32_t>& zones_;
  int32_t tp_;
  Budgets budgets_;
  Bundles best_;
  int64_t bound_ = 0;
};

}  // namespace

Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& zones, int32_t tp,
                       const Budgets& budgets) {
  return JointSearch(classes, steps, zones, tp, budgets).run();
}

Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps, size_t num_ranks,
                       const OwnerSets& sets) {
  Bundles longest(classes, steps, num_ranks, sets), narrowest = longest;
  deal_longest_first(longest);
  exchange_items(longest, kExchangeBudget);
  deal_narrowest_first(narrowest);
  exchange_items(narrowest, kExchangeBudget);
  return narrowest.objective() < longest.objective() ? narrowest : longest;
}

}  // namespace canzona::plan
