#include "canzona/plan/makespan/bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "canzona/base/units.h"

namespace canzona {
namespace {

constexpr int64_t kNodeLimit = 200'000;
// Bounds are compared with this slack, so that rounding cannot prune the
// optimum.
constexpr double kSlack = 1e-12;

class Search {
 public:
  Search(std::span<const SizeCount> items, std::span<const double> values)
      : items_(items), values_(values), current_(items.size(), 0) {
    best_.counts.assign(items.size(), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      if (values[i] > 0) order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return density(a) > density(b);
    });
  }

  std::optional<Pattern> run(int64_t capacity) {
    descend(0, capacity, 0);
    if (nodes_ > kNodeLimit) return std::nullopt;
    return best_;
  }

 private:
  double density(size_t i) const {
    return values_[i] / static_cast<double>(items_[i].size);
  }

  void descend(size_t depth, int64_t room, double value) {
    if (++nodes_ > kNodeLimit) return;
    if (value > best_.value) {
      best_.value = value;
      best_.counts = current_;
    }
    if (depth == order_.size()) return;
    const size_t i = order_[depth];
    const double limit = value + density(i) * static_cast<double>(room);
    if (limit <= best_.value * (1 + kSlack)) return;
    int64_t most = std::min(items_[i].count, room / items_[i].size);
    for (int64_t n = most; n >= 0 && nodes_ <= kNodeLimit; --n) {
      current_[i] = n;
      descend(depth + 1, room - n * items_[i].size,
              value + static_cast<double>(n) * values_[i]);
    }
    current_[i] = 0;
  }

  std::span<const SizeCount> items_;
  std::span<const double> values_;
  std::vector<size_t> order_;
  std::vector<int64_t> current_;
  Pattern best_;
  int64_t nodes_ = 0;
};

}  // namespace

std::optional<Pattern> best_pattern(std::span<const SizeCount> items,
                                    std::span<const double> values,
                                    int64_t capacity) {
  return Search(items, values).run(capacity);
}

int64_t load_of(std::span<const SizeCount> items,
                std::span<const int64_t> counts) {
  int64_t load = 0;
  for (size_t i = 0; i < items.size(); ++i) load += items[i].size * counts[i];
  return load;
}

namespace {

constexpr int kMaxPivots = 400;
constexpr double kTolerance = 1e-9;
constexpr double kPivot = 1e-11;

using Vector = std::vector<double>;

// Solves A x = b for a small dense A (row-major n × n) by elimination with
// partial pivoting; false if A is singular.
bool solve(std::vector<Vector> a, Vector b, Vector& x) {
  const size_t n = b.size();
  for (size_t col = 0; col < n; ++col) {
    size_t pivot = col;
    for (size_t r = col + 1; r < n; ++r) {
      if (std::fabs(a[r][col]) > std::fabs(a[pivot][col])) pivot = r;
    }
    if (std::fabs(a[pivot][col]) < kPivot) return false;
    std::swap(a[pivot], a[col]);
    std::swap(b[pivot], b[col]);
    for (size_t r = col + 1; r < n; ++r) {
      const double factor = a[r][col] / a[col][col];
      if (factor == 0) continue;
      for (size_t c = col; c < n; ++c) a[r][c] -= factor * a[col][c];
      b[r] -= factor * b[col];
    }
  }
  x.assign(n, 0);
  for (size_t i = n; i-- > 0;) {
    double sum = b[i];
    for (size_t c = i + 1; c < n; ++c) sum -= a[i][c] * x[c];
    x[i] = sum / a[i][i];
  }
  return true;
}

class Relaxation {
 public:
  Relaxation(std::span<const SizeCount> items, int64_t ranks, int64_t capacity)
      : items_(items), ranks_(static_cast<double>(ranks)), capacity_(capacity) {
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<int64_t> only(items.size(), 0);
      only[i] = std::min(items[i].count, capacity / items[i].size);
      basis_.push_back(std::move(only));
      needed_.push_back(static_cast<double>(items[i].count));
    }
  }

  PatternSolution run() {
    PatternSolution out;
    for (int pivot = 0; pivot < kMaxPivots; ++pivot) {
      Vector x, prices;
      if (!solve(columns(), needed_, x)) break;
      if (total(x) <= ranks_ * (1 + kTolerance)) return fits(x);
      if (!solve(rows(), Vector(items_.size(), 1.0), prices)) break;
      for (double& price : prices) price = std::max(price, 0.0);
      std::optional<Pattern> best = best_pattern(items_, prices, capacity_);
      if (!best) break;
      if (too_small(prices, best->value)) {
        out.status = PatternSolution::kTooSmall;
        return out;
      }
      if (best->value <= 1 + kTolerance || !enter(best->counts, x)) break;
    }
    return out;
  }

 private:
  static double total(const Vector& x) {
    double sum = 0;
    for (double v : x) sum += v;
    return sum;
  }

  // Prices scaled by the most valuable pattern are feasible for the dual, so
  // they bound the number of ranks from below even if rounding stopped the
  // iteration early.
  bool too_small(const Vector& prices, double dearest) const {
    double worth = 0;
    for (size_t i = 0; i < prices.size(); ++i) worth += prices[i] * needed_[i];
    return worth > ranks_ * std::max(dearest, 1e-300) * (1 + kTolerance);
  }

  std::vector<Vector> columns() const {  // matrix whose columns are patterns
    std::vector<Vector> a(items_.size(), Vector(items_.size()));
    for (size_t i = 0; i < items_.size(); ++i) {
      for (size_t j = 0; j < items_.size(); ++j) {
        a[i][j] = static_cast<double>(basis_[j][i]);
      }
    }
    return a;
  }

  std::vector<Vector> rows() const {  // its transpose
    std::vector<Vector> a;
    for (const auto& pattern : basis_) {
      a.emplace_back(pattern.begin(), pattern.end());
    }
    return a;
  }

  bool enter(const std::vector<int64_t>& pattern, const Vector& x) {
    Vector step;
    if (!solve(columns(), Vector(pattern.begin(), pattern.end()), step)) {
      return false;
    }
    size_t leaves = x.size();
    double least = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (step[i] <= kPivot) continue;
      const double ratio = std::max(x[i], 0.0) / step[i];
      if (leaves == x.size() || ratio < least) {
        leaves = i;
        least = ratio;
      }
    }
    if (leaves == x.size()) return false;
    basis_[leaves] = pattern;
    return true;
  }

  PatternSolution fits(const Vector& x) const {
    PatternSolution out;
    out.status = PatternSolution::kFits;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] <= kTolerance) continue;
      out.patterns.push_back(basis_[i]);
      out.fractions.push_back(x[i]);
    }
    return out;
  }

  std::span<const SizeCount> items_;
  double ranks_;
  int64_t capacity_;
  std::vector<std::vector<int64_t>> basis_;
  Vector needed_;
};

}  // namespace

PatternSolution relax_patterns(std::span<const SizeCount> items, int64_t ranks,
                               int64_t capacity) {
  PatternSolution out;
  if (items.empty()) {
    out.status = PatternSolution::kFits;
    return out;
  }
  if (items.size() > kMaxPatternSizes) return out;
  if (items.front().size > capacity) {
    out.status = PatternSolution::kTooSmall;
    return out;
  }
  return Relaxation(items, ranks, capacity).run();
}

namespace {

// Returns the k-th largest size, counted from 1; 0 if there are fewer.
int64_t kth_largest(std::span<const SizeCount> items, int64_t k) {
  for (const SizeCount& item : items) {
    if (k <= item.count) return item.size;
    k -= item.count;
  }
  return 0;
}

int64_t largest_load(std::span<const SizeCount> items,
                     const PatternSolution& solution) {
  int64_t load = 0;
  for (const auto& pattern : solution.patterns) {
    load = std::max(load, load_of(items, pattern));
  }
  return load;
}

}  // namespace

int64_t simple_bound(std::span<const SizeCount> items, int64_t ranks) {
  int64_t sum = 0;
  for (const SizeCount& item : items) sum += item.size * item.count;
  const int64_t mean = (sum + ranks - 1) / ranks;
  // With more than R items, two of the R+1 largest share a rank.
  int64_t pair = kth_largest(items, ranks + 1);
  if (pair > 0) pair += kth_largest(items, ranks);
  return std::max({mean, kth_largest(items, 1), pair});
}

int64_t lower_bound(std::span<const SizeCount> items, int64_t ranks,
                    int64_t upper) {
  int64_t low = simple_bound(items, ranks);
  if (items.size() > kMaxPatternSizes || upper <= low) return low;
  PatternSolution at_low = relax_patterns(items, ranks, low);
  if (at_low.status != PatternSolution::kTooSmall) return low;
  int64_t high = upper;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    PatternSolution solution = relax_patterns(items, ranks, middle);
    if (solution.status == PatternSolution::kTooSmall) {
      low = middle;
    } else if (solution.status == PatternSolution::kFits) {
      high = std::min(middle, std::max(largest_load(items, solution), low + 1));
    } else {
      return low + 1;
    }
  }
  return high;
}

namespace {

// Returns the least work of a size whose path is at most `target`; -1 if there
// is none.
int64_t least_work(const TeamSizes& sizes, int64_t target) {
  int64_t least = -1;
  for (const TeamSize& size : sizes)
    if (size.path <= target && (least < 0 || size.work() < least))
      least = size.work();
  return least;
}

bool may_be_reached(std::span<const TeamItem> items, int64_t ranks,
                    int64_t target) {
  Int128 sum = 0;
  for (const TeamItem& item : items) {
    const int64_t work = least_work(item.sizes, target);
    if (work < 0) return false;
    sum += Int128{work} * item.count;
  }
  return sum <= Int128{target} * ranks;
}

// Returns a target that can be reached: every path, with all work on one rank.
int64_t reachable_target(std::span<const TeamItem> items) {
  int64_t sum = 0, longest = 0;
  for (const TeamItem& item : items) {
    int64_t least = INT64_MAX;
    for (const TeamSize& size : item.sizes) {
      least = std::min(least, size.work());
      longest = std::max(longest, size.path);
    }
    sum = checked_add(sum, checked_mul(least, item.count, "ticks"), "ticks");
  }
  return std::max(sum, longest);
}

}  // namespace

const TeamSize* smallest_that_fits(const TeamSizes& sizes, int64_t target) {
  const auto found =
      std::find_if(sizes.begin(), sizes.end(),
                   [&](const TeamSize& size) { return size.path <= target; });
  return found == sizes.end() ? nullptr : &*found;
}

int64_t team_bound(std::span<const TeamItem> items, int64_t ranks) {
  // Bisection works because whatever a target allows, a larger one allows, too.
  int64_t low = -1, high = reachable_target(items);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (may_be_reached(items, ranks, middle) ? high : low) = middle;
  }
  return high;
}

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
