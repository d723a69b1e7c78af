// Whole items dealt to ranks: the state of the joint search. Ranks with their
// bundles are then grouped into homes.
//
// Items of one class are alike in every respect that matters (load, elements,
// bytes), so a rank's bundle is a short list of (class, count), and 36,000
// matrices on 1,024 ranks are a few thousand numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/makespan/bound.h"

namespace canzona::plan {

struct ClassCount {
  int32_t item_class = 0;
  int32_t count = 0;
  friend bool operator==(const ClassCount&, const ClassCount&) = default;
};

// The bundles of all ranks. `zones[r]` is the zone of rank r, and an item's
// zone is one of these. With `sets`, which may overlap, an item's zone is
// instead the number of its set of owners, and ranks that are in the same sets
// have the same zone. Classes and sets must outlive the bundles.
class Bundles {
 public:
  Bundles(const std::vector<ItemClass>& classes, std::vector<int64_t> steps,
          std::vector<int32_t> zones);
  Bundles(const std::vector<ItemClass>& classes, std::vector<int64_t> steps,
          size_t num_ranks, const OwnerSets& sets);

  size_t num_ranks() const { return bundles_.size(); }
  size_t dims() const { return steps_.size(); }
  int32_t zone(size_t rank) const { return zones_[rank]; }
  const std::vector<ItemClass>& classes() const { return *classes_; }
  const std::vector<ClassCount>& bundle(size_t rank) const {
    return bundles_[rank];
  }
  std::span<const int64_t> load(size_t rank) const {
    return std::span(loads_).subspan(rank * dims(), dims());
  }
  std::span<const int64_t> steps() const { return steps_; }

  void add(size_t rank, int32_t item_class, int32_t count);
  bool may_own(size_t rank, int32_t item_class) const {
    const int32_t zone = (*classes_)[static_cast<size_t>(item_class)].zone;
    if (sets_ != nullptr) return is_in_set(rank, zone);
    return zone == kAnyZone || zone == zones_[rank];
  }
  // Returns the ranks that may own items of a zone, ascending.
  std::vector<size_t> owners(int32_t zone) const;

  // Return the load of a rank over a whole period, and the objective.
  int64_t period_load(size_t rank) const;
  int64_t objective() const;

 private:
  bool is_in_set(size_t rank, int32_t set) const;

  const std::vector<ItemClass>* classes_;
  const OwnerSets* sets_ = nullptr;
  std::vector<int64_t> steps_;
  std::vector<int32_t> zones_;
  std::vector<std::vector<ClassCount>> bundles_;
  std::vector<int64_t> loads_;
};

// Deals by longest processing time: the largest class first, each item to the
// least loaded rank of its zone; ties go to the lowest rank.
void deal_longest_first(Bundles& bundles);
// The same, but starts with the classes that the fewest ranks may own.
void deal_narrowest_first(Bundles& bundles);

// Local search: the critical rank gives up to two items and takes up to two
// from another rank while the objective falls, or stays and fewer ranks are
// critical. Deterministic; `budget` limits the number of exchanges tried.
void exchange_items(Bundles& bundles, int64_t budget);

// Groups bundles into homes: which tp bundles are storage at one home. Any rank
// may carry any bundle of its zone, so this changes no load, only the cost and
// memory of each home.
//
// Rank r belongs to home r / tp. First, elements and memory per home are
// brought under their limits (the byte and memory budgets); then the largest
// cost per home is lowered; then the largest memory per home, at nearly that
// cost.

// The weight of a bundle, an item or a home.
struct HomeWeight {
  int64_t cost = 0;      // load over a period
  int64_t memory = 0;    // bytes of master weights and states
  int64_t elements = 0;  // of TP shards

  // Adds `times` times another weight; negative values subtract.
  HomeWeight& add(const HomeWeight& other, int64_t times = 1) {
    cost += other.cost * times;
    memory += other.memory * times;
    elements += other.elements * times;
    return *this;
  }
  HomeWeight& operator+=(const HomeWeight& other) { return add(other); }
  HomeWeight& operator-=(const HomeWeight& other) { return add(other, -1); }
};
HomeWeight weigh_item(const Bundles& bundles, int32_t item_class);
HomeWeight weigh_bundle(const Bundles& bundles, size_t rank);

// Limits that a change to two homes must respect.
struct HomeLimits {
  int64_t cost = INT64_MAX;
  int64_t memory = INT64_MAX;
  int64_t elements = INT64_MAX;
  bool allow(const HomeWeight& home) const {
    return home.cost <= cost && home.memory <= memory &&
           home.elements <= elements;
  }
};

// Costs this close to the mean count as level, which leaves room for leveling
// memory.
inline constexpr double kLevelCost = 1 + 1.0 / 2048;
// Returns `limits` with the highest cost allowed while memory is leveled.
HomeLimits limits_for_memory(const std::vector<HomeWeight>& homes,
                             HomeLimits limits);
size_t largest_home(const std::vector<HomeWeight>& homes,
                    int64_t HomeWeight::*key);
int64_t largest(const std::vector<HomeWeight>& homes, int64_t HomeWeight::*key);

// Brings `homes` under the budgets, then lowers cost, then memory. relieve(key,
// limits) makes one change that lowers the largest `key`; it returns false if
// there is none.
template <class Relieve>
void level(const std::vector<HomeWeight>& homes, HomeLimits budgets,
           Relieve relieve) {
  for (auto key : {&HomeWeight::elements, &HomeWeight::memory}) {
    int64_t& budget =
        key == &HomeWeight::memory ? budgets.memory : budgets.elements;
    HomeLimits others = budgets;
    others.memory = INT64_MAX;
    if (key == &HomeWeight::elements) others = {};
    while (largest(homes, key) > budget && relieve(key, others)) {
    }
    budget = std::max(budget, largest(homes, key));
  }
  while (relieve(&HomeWeight::cost, budgets)) {
  }
  const HomeLimits limits = limits_for_memory(homes, budgets);
  while (relieve(&HomeWeight::memory, limits)) {
  }
}

// bundle_at[r] is the bundle that rank r carries.
std::vector<size_t> group_into_homes(const Bundles& bundles, int32_t tp,
                                     const HomeLimits& budgets);

// Returns `bundles` with bundle bundle_at[r] moved to rank r.
Bundles permuted(const Bundles& bundles, const std::vector<size_t>& bundle_at);

// Exchanges single items between homes for the same objectives, without
// exceeding the current largest load of any step. `budget` limits the number of
// exchanges tried.
void level_homes(Bundles& bundles, int32_t tp, const HomeLimits& budgets,
                 int64_t budget);

}  // namespace canzona::plan
