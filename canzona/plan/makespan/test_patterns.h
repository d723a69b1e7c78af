// Items for tests, and the pattern relaxation by brute force for up to three
// sizes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "canzona/plan/makespan/bound.h"

namespace canzona::plan {

// Counts equal sizes. Zeros are dropped because they add no load.
inline std::vector<SizeCount> count_sizes(std::vector<int64_t> sizes) {
  std::ranges::sort(sizes, std::greater<>());
  std::vector<SizeCount> out;
  for (int64_t size : sizes) {
    if (size <= 0) break;
    if (out.empty() || out.back().size != size) out.push_back({size, 0});
    ++out.back().count;
  }
  return out;
}

// By duality, the number of ranks that fractional patterns need is the largest
// total worth of all items at prices for which no pattern is worth more than
// one rank. The maximum lies at a corner, where three of the limits hold with
// equality; this oracle tries all corners.
class PatternOracle {
 public:
  PatternOracle(std::vector<SizeCount> items, int64_t capacity)
      : items_(std::move(items)), capacity_(capacity) {
    items_.resize(3, {1, 0});
    add_patterns({}, 0, capacity_);
    for (size_t i = 0; i < 3; ++i) {
      Limit positive{};
      positive[i] = -1;
      limits_.push_back(positive);
    }
  }

  // Infinite if some size exceeds the capacity.
  double fewest_ranks() const {
    if (items_[0].size > capacity_) return HUGE_VAL;
    double most = 0;
    for (size_t a = 0; a < limits_.size(); ++a) {
      for (size_t b = a + 1; b < limits_.size(); ++b) {
        for (size_t c = b + 1; c < limits_.size(); ++c) {
          most = std::max(most, worth_at_corner({a, b, c}));
        }
      }
    }
    return most;
  }

 private:
  // prices · limit ≤ limit[3]
  using Limit = std::array<double, 4>;
  using Corner = std::array<size_t, 3>;

  void add_patterns(Limit pattern, size_t i, int64_t room) {
    if (i == 3) {
      pattern[3] = 1;
      limits_.push_back(pattern);
      return;
    }
    const int64_t most = std::min(items_[i].count, room / items_[i].size);
    // The last size always fills the rest: patterns with less of it add no
    // limit.
    for (int64_t n = i == 2 ? most : 0; n <= most; ++n) {
      pattern[i] = static_cast<double>(n);
      add_patterns(pattern, i + 1, room - n * items_[i].size);
    }
  }

  // The determinant of the three equations with column `col` replaced by the
  // right side (3: none replaced).
  double determinant(const Corner& at, size_t col) const {
    auto e = [&](size_t row, size_t c) {
      return limits_[at[row]][c == col ? 3 : c];
    };
    return e(0, 0) * (e(1, 1) * e(2, 2) - e(1, 2) * e(2, 1)) -
           e(0, 1) * (e(1, 0) * e(2, 2) - e(1, 2) * e(2, 0)) +
           e(0, 2) * (e(1, 0) * e(2, 1) - e(1, 1) * e(2, 0));
  }

  double worth_at_corner(const Corner& at) const {
    const double whole = determinant(at, 3);
    if (whole == 0) return 0;
    std::array<double, 3> price{};
    for (size_t i = 0; i < 3; ++i) price[i] = determinant(at, i) / whole;
    for (const Limit& l : limits_) {
      const double side = price[0] * l[0] + price[1] * l[1] + price[2] * l[2];
      if (side > l[3] + 1e-9) return 0;
    }
    double worth = 0;
    for (size_t i = 0; i < 3; ++i) {
      worth += price[i] * static_cast<double>(items_[i].count);
    }
    return worth;
  }

  std::vector<SizeCount> items_;
  int64_t capacity_;
  std::vector<Limit> limits_;
};

}  // namespace canzona::plan
