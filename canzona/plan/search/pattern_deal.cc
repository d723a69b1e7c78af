#include "canzona/plan/search/pattern_deal.h"

#include <algorithm>
#include <cmath>

#include "canzona/plan/makespan/pattern_lp.h"

namespace canzona {
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
    if (c.block != kAnyBlock) return false;
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

}  // namespace canzona
