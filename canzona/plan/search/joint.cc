#include "canzona/plan/search/joint.h"

#include <algorithm>

#include "canzona/plan/makespan/bound.h"
#include "canzona/plan/search/homes.h"
#include "canzona/plan/search/pattern_deal.h"

namespace canzona {
namespace {

constexpr int64_t kExchangeBudget = 4'000'000;
constexpr int64_t kLevelBudget = 4'000'000;
// Capacities tried above the bound: in steps of 1/2048, at most this many.
constexpr int kMaxCapacities = 48;

// Item sizes in dimension p; with blocks given, only those of one block.
std::vector<SizeCount> sizes_in(const std::vector<ItemClass>& classes, size_t p,
                                int32_t block) {
  std::vector<SizeCount> out;
  for (const ItemClass& c : classes) {
    if (c.load[p] <= 0 || c.count == 0) continue;
    if (block != kAnyBlock && c.block != block) continue;
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
                 const std::vector<int32_t>& blocks, int64_t upper) {
  const auto ranks = static_cast<int64_t>(blocks.size());
  int64_t bound = lower_bound(sizes_in(classes, p, kAnyBlock), ranks, upper);
  std::vector<int32_t> distinct = blocks;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (int32_t block : distinct) {
    if (block == kAnyBlock) continue;
    const int64_t own = std::count(blocks.begin(), blocks.end(), block);
    bound = std::max(bound, simple_bound(sizes_in(classes, p, block), own));
  }
  return bound;
}

class JointSearch {
 public:
  JointSearch(const std::vector<ItemClass>& classes,
              const std::vector<int64_t>& steps,
              const std::vector<int32_t>& blocks, int32_t tp, double alpha)
      : classes_(classes), steps_(steps), blocks_(blocks), tp_(tp),
        alpha_(alpha), best_(classes, steps, blocks) {}

  Bundles run() {
    best_ = fresh();
    deal_longest_first(best_);
    exchange_items(best_, kExchangeBudget);
    bound_ = objective_bound(classes_, steps_, blocks_, best_.objective());
    try_patterns();
    const int64_t limit = element_limit();
    Bundles grouped = permuted(best_, group_into_homes(best_, tp_, limit));
    level_homes(grouped, tp_, limit, kLevelBudget);
    return grouped;
  }

 private:
  Bundles fresh() const { return Bundles(classes_, steps_, blocks_); }

  // Elements per home that leave the buckets room to breathe: midway between the
  // mean and what the budget allows of every bucket.
  int64_t element_limit() const {
    double sum = 0;
    int64_t largest = 0;
    for (const ItemClass& c : classes_) {
      sum += static_cast<double>(c.elements) * static_cast<double>(c.count);
      largest = std::max(largest, c.elements);
    }
    const double mean =
        sum * tp_ / static_cast<double>(blocks_.size());
    const double share = alpha_ < 1 ? 0.5 + 0.5 / (1 - alpha_) : 1e6;
    return std::max(largest, static_cast<int64_t>(std::min(mean * share, 4e18)));
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

  const std::vector<ItemClass>& classes_;
  const std::vector<int64_t>& steps_;
  const std::vector<int32_t>& blocks_;
  int32_t tp_;
  double alpha_;
  Bundles best_;
  int64_t bound_ = 0;
};

}  // namespace

int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& blocks, int64_t upper) {
  int64_t sum = 0;
  for (size_t p = 0; p < steps.size(); ++p) {
    if (steps[p] == 0) continue;
    // `upper` bounds the whole objective, hence every dimension's share of it.
    sum += steps[p] * bound_in(classes, p, blocks, upper / steps[p]);
  }
  return sum;
}

Bundles search_bundles(const std::vector<ItemClass>& classes,
                       const std::vector<int64_t>& steps,
                       const std::vector<int32_t>& blocks, int32_t tp,
                       double alpha) {
  return JointSearch(classes, steps, blocks, tp, alpha).run();
}

}  // namespace canzona
