#include "canzona/plan/makespan/objective.h"

#include <algorithm>
#include <array>
#include <map>

#include "canzona/plan/makespan/bound.h"

namespace canzona {
namespace {

// Returns the sizes, in dimension p, of the items of all classes c for which
// counts(c) is true.
template <class Counts>
std::vector<SizeCount> sizes_in(const std::vector<ItemClass>& classes, size_t p,
                                Counts counts) {
  std::vector<SizeCount> out;
  for (const ItemClass& c : classes) {
    if (c.load[p] <= 0 || c.count == 0 || !counts(c)) continue;
    out.push_back({c.load[p], c.count});
  }
  std::sort(out.begin(), out.end(), [](const SizeCount& a, const SizeCount& b) {
    return a.size > b.size;
  });
  std::vector<SizeCount> merged;
  for (const SizeCount& s : out) {
    if (!merged.empty() && merged.back().size == s.size) {
      merged.back().count += s.count;
    } else {
      merged.push_back(s);
    }
  }
  return merged;
}

int64_t bound_in(const std::vector<ItemClass>& classes, size_t p,
                 const std::vector<int32_t>& zones, int64_t upper) {
  const auto ranks = static_cast<int64_t>(zones.size());
  int64_t bound =
      lower_bound(sizes_in(classes, p, [](const ItemClass&) { return true; }),
                  ranks, upper);
  std::map<int32_t, int64_t> ranks_of;
  for (int32_t zone : zones) ++ranks_of[zone];
  for (const auto& [zone, own] : ranks_of) {
    if (zone == kAnyZone) continue;
    const auto sizes = sizes_in(
        classes, p,
        [wanted = zone](const ItemClass& c) { return c.zone == wanted; });
    bound = std::max(bound, simple_bound(sizes, own));
  }
  return bound;
}

// Comparing sets of owners may visit at most this many ranks; beyond that only
// the bound over all items is computed.
constexpr size_t kMaxRanksCompared = size_t{1} << 27;

// Returns, for each set, which sets are subsets of it; nothing if there are too
// many to compare.
std::vector<std::vector<bool>> sets_within(const OwnerSets& sets) {
  std::vector<std::vector<bool>> within;
  size_t ranks = 0;
  for (const auto& set : sets) ranks += set.size();
  if (ranks * sets.size() > kMaxRanksCompared) return within;
  for (const auto& outer : sets) {
    within.emplace_back();
    for (const auto& inner : sets)
      within.back().push_back(std::includes(outer.begin(), outer.end(),
                                            inner.begin(), inner.end()));
  }
  return within;
}

int64_t bound_in(const std::vector<ItemClass>& classes, size_t p,
                 size_t num_ranks, const OwnerSets& sets,
                 const std::vector<std::vector<bool>>& within, int64_t upper) {
  int64_t bound =
      lower_bound(sizes_in(classes, p, [](const ItemClass&) { return true; }),
                  static_cast<int64_t>(num_ranks), upper);
  for (size_t s = 0; s < within.size(); ++s) {
    const auto sizes = sizes_in(classes, p, [&](const ItemClass& c) {
      return within[s][static_cast<size_t>(c.zone)];
    });
    bound = std::max(bound, simple_bound(sizes, std::ssize(sets[s])));
  }
  return bound;
}

// Returns everything that bound_in depends on, so that phases whose matrices
// are alike share their bound.
std::vector<std::array<int64_t, 3>> dimension_key(
    const std::vector<ItemClass>& classes, size_t p, int64_t upper) {
  std::vector<std::array<int64_t, 3>> key;
  for (const ItemClass& c : classes) {
    key.push_back({c.load[p], c.zone, c.count});
  }
  std::sort(key.begin(), key.end());
  key.push_back({upper, 0, 0});
  return key;
}

// Returns the sum over kinds of steps of bound(p, upper), which is computed
// once for kinds that are alike. `upper` bounds the whole objective, hence
// every dimension's share of it.
template <class BoundOf>
int64_t sum_of_bounds(const std::vector<ItemClass>& classes,
                      const std::vector<int64_t>& steps, int64_t upper,
                      BoundOf bound) {
  int64_t sum = 0;
  std::map<std::vector<std::array<int64_t, 3>>, int64_t> known;
  for (size_t p = 0; p < steps.size(); ++p) {
    if (steps[p] == 0) continue;
    const int64_t share = upper / steps[p];
    const auto [it, fresh] = known.emplace(dimension_key(classes, p, share), 0);
    if (fresh) it->second = bound(p, share);
    sum += steps[p] * it->second;
  }
  return sum;
}

}  // namespace

int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& zones, int64_t upper) {
  return sum_of_bounds(classes, steps, upper, [&](size_t p, int64_t share) {
    return bound_in(classes, p, zones, share);
  });
}

int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps, size_t num_ranks,
                        const OwnerSets& sets, int64_t upper) {
  const auto within = sets_within(sets);
  return sum_of_bounds(classes, steps, upper, [&](size_t p, int64_t share) {
    return bound_in(classes, p, num_ranks, sets, within, share);
  });
}

}  // namespace canzona
