#include "canzona/plan/makespan/knapsack.h"

#include <algorithm>
#include <numeric>

namespace canzona {
namespace {

constexpr int64_t kNodeLimit = 200'000;
// Bounds are compared with this slack, so that rounding cannot cut the optimum.
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

}  // namespace canzona
