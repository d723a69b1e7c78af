// Groups bundles into homes: which tp bundles are placed at one home. Any rank
// may carry any bundle of its zone, so this changes no load, only the cost and
// memory of each home.
//
// Rank r belongs to home r / tp. First, elements and memory per home are
// brought under their limits (the byte and memory budgets); then the largest
// cost per home is lowered; then the largest memory per home, at nearly that
// cost.
#pragma once

#include <algorithm>

#include "canzona/plan/search/bundles.h"

namespace canzona {

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

}  // namespace canzona
