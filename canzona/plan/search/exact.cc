#include "canzona/plan/search/joint.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "canzona/base/error.h"

namespace canzona::plan {
namespace {

class BranchAndBound {
 public:
  explicit BranchAndBound(const ExactCase& c)
      : c_(c),
        dims_(c.steps.size()),
        ranks_(c.zones.size()),
        loads_(ranks_ * dims_, 0),
        current_(c.items.size(), -1),
        held_(c.caps.size(), std::vector<int64_t>(ranks_, 0)),
        order_(c.items.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return period(c.items[a]) > period(c.items[b]);
    });
    int64_t sum = 0;
    for (const ExactItem& item : c.items) sum += period(item);
    mean_ =
        (sum + static_cast<int64_t>(ranks_) - 1) / static_cast<int64_t>(ranks_);
    left_.assign(order_.size() + 1, 0);
    for (size_t d = order_.size(); d-- > 0;) {
      left_[d] = left_[d + 1] + period(c.items[order_[d]]);
    }
  }

  std::optional<std::vector<int32_t>> run() {
    descend(0);
    if (best_ == std::numeric_limits<int64_t>::max()) return std::nullopt;
    return best_assignment_;
  }

 private:
  int64_t period(const ExactItem& item) const {
    int64_t sum = 0;
    for (size_t p = 0; p < dims_; ++p) sum += c_.steps[p] * item.load[p];
    return sum;
  }

  int64_t objective() const {
    int64_t sum = 0;
    for (size_t p = 0; p < dims_; ++p) {
      int64_t most = 0;
      for (size_t r = 0; r < ranks_; ++r) {
        most = std::max(most, loads_[r * dims_ + p]);
      }
      sum += c_.steps[p] * most;
    }
    return sum;
  }

  void descend(size_t depth) {
    if (best_ <= mean_) return;  // cannot be beaten
    const int64_t now = objective();
    if (now >= best_ || !room_left(depth)) return;
    if (depth == order_.size()) {
      best_ = now;
      best_assignment_ = current_;
      return;
    }
    const size_t i = order_[depth];
    for (size_t r : candidates(i)) {
      place(i, r, 1);
      descend(depth + 1);
      place(i, r, -1);
    }
  }

  // Returns false if the ranks that can still take the smallest item lack room
  // for everything that is left, given that the objective must fall below the
  // best one.
  bool room_left(size_t depth) const {
    if (dims_ != 1 || depth == order_.size()) return true;
    const int64_t smallest = c_.items[order_.back()].load[0];
    int64_t room = 0;
    for (size_t r = 0; r < ranks_; ++r) {
      const int64_t slack = best_ - 1 - loads_[r];
      if (slack >= smallest) room += slack;
      if (room >= left_[depth]) return true;
    }
    return false;
  }

  size_t home(size_t rank) const { return index(c_.homes[rank]); }

  // Returns the ranks that may take item i, least loaded first, and only one of
  // several ranks that are interchangeable.
  std::vector<size_t> candidates(size_t i) const {
    std::vector<size_t> out;
    for (size_t r = 0; r < ranks_; ++r) {
      if (allowed(i, r) && !repeats(i, r)) out.push_back(r);
    }
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) {
      return loads_[a * dims_] < loads_[b * dims_];
    });
    return out;
  }

  // Returns the home that already holds a matrix of this tensor; -1 if there is
  // none.
  int64_t fixed_home(size_t i) const {
    for (size_t j = 0; j < c_.items.size(); ++j) {
      if (j != i && current_[j] >= 0 &&
          c_.items[j].tensor == c_.items[i].tensor) {
        return static_cast<int64_t>(home(static_cast<size_t>(current_[j])));
      }
    }
    return -1;
  }

  bool allowed(size_t i, size_t r) const {
    const ExactItem& item = c_.items[i];
    if (item.zone >= 0 && item.zone != c_.zones[r]) return false;
    const int64_t fixed = fixed_home(i);
    if (fixed >= 0) return static_cast<int64_t>(home(r)) == fixed;
    const auto b = static_cast<size_t>(item.bucket);
    return held_[b][home(r)] + item.elements <= c_.caps[b];
  }

  bool home_is_empty(size_t h) const {
    return std::ranges::none_of(current_, [&](int32_t rank) {
      return rank >= 0 && home(index(rank)) == h;
    });
  }

  // True if a lower rank offers the same: an equal load in the same home, or an
  // empty home of the same zone.
  bool repeats(size_t i, size_t r) const {
    for (size_t lower = 0; lower < r; ++lower) {
      if (!allowed(i, lower) || c_.zones[lower] != c_.zones[r]) continue;
      const bool same_load =
          std::equal(loads_.begin() + static_cast<int64_t>(r * dims_),
                     loads_.begin() + static_cast<int64_t>((r + 1) * dims_),
                     loads_.begin() + static_cast<int64_t>(lower * dims_));
      if (!same_load) continue;
      if (home(lower) == home(r)) return true;
      if (home_is_empty(home(lower)) && home_is_empty(home(r))) return true;
    }
    return false;
  }

  void place(size_t i, size_t r, int64_t sign) {
    const ExactItem& item = c_.items[i];
    if (sign < 0) current_[i] = -1;
    if (fixed_home(i) < 0) {
      held_[static_cast<size_t>(item.bucket)][home(r)] += sign * item.elements;
    }
    if (sign > 0) current_[i] = static_cast<int32_t>(r);
    for (size_t p = 0; p < dims_; ++p) {
      loads_[r * dims_ + p] += sign * item.load[p];
    }
  }

  const ExactCase& c_;
  size_t dims_;
  size_t ranks_;
  std::vector<int64_t> loads_;
  std::vector<int32_t> current_;
  std::vector<std::vector<int64_t>> held_;  // per bucket and home
  std::vector<size_t> order_;
  std::vector<int64_t> left_;  // period load of the items from each depth on
  int64_t mean_ = 0;
  int64_t best_ = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> best_assignment_;
};

}  // namespace

std::optional<std::vector<int32_t>> solve_exactly(const ExactCase& c) {
  return BranchAndBound(c).run();
}

}  // namespace canzona::plan
