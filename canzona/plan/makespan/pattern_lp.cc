#include "canzona/plan/makespan/pattern_lp.h"

#include <algorithm>
#include <cmath>

namespace canzona {
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

  // Prices scaled by the dearest pattern are feasible for the dual, so they
  // bound the number of ranks from below even where rounding stopped us early.
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

}  // namespace canzona
