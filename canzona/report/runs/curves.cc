#include "canzona/report/runs/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace canzona {
namespace {

constexpr size_t kMaxSmoothed = 2000;
// Differences and squares of what is drawn must be finite, too.
constexpr double kLargest = 1e100;

// The straight line nearest to weighted points, at one place.
class LineFit {
 public:
  explicit LineFit(double center) : center_(center) {}

  void add(double x, double y, double weight) {
    const double dx = x - center_;
    w_ += weight;
    wx_ += weight * dx;
    wxx_ += weight * dx * dx;
    wy_ += weight * y;
    wxy_ += weight * dx * y;
  }
  double at_center() const {
    const double spread = w_ * wxx_ - wx_ * wx_;
    if (!(spread > 1e-12 * w_ * wxx_)) return wy_ / w_;
    return (wxx_ * wy_ - wx_ * wxy_) / spread;
  }

 private:
  double center_;
  double w_ = 0, wx_ = 0, wxx_ = 0, wy_ = 0, wxy_ = 0;
};

// Calls `use(first, last)` for at most `most` runs of points.
template <class Use>
void for_each_run(const Points& points, size_t most, const Use& use) {
  const size_t length = (points.size() + most - 1) / most;
  for (size_t first = 0; first < points.size(); first += length) {
    const size_t end = std::min(first + length, points.size());
    use(points.begin() + static_cast<ptrdiff_t>(first),
        points.begin() + static_cast<ptrdiff_t>(end));
  }
}

}  // namespace

Points points_of(const TrainingRun& run, Figure figure) {
  Points points;
  for (const StepMetrics& step : run.steps) {
    const double value = figure(step);
    if (std::fabs(value) < kLargest && std::fabs(step.seconds) < kLargest)
      points.push_back({static_cast<double>(step.step),
                        static_cast<double>(step.tokens), step.seconds, value});
  }
  return points;
}

double loss_of(const StepMetrics& step) { return step.loss; }
double eval_loss_of(const StepMetrics& step) {
  return step.eval_loss.value_or(std::numeric_limits<double>::quiet_NaN());
}

Points smoothed(const Points& all) {
  const Points points = thinned_mean(all, kMaxSmoothed);
  const auto count = static_cast<ptrdiff_t>(points.size());
  const ptrdiff_t reach =
      std::min(std::max<ptrdiff_t>(2, count / 40), (count - 1) / 2);
  Points out;
  for (ptrdiff_t i = 0; i < count; ++i) {
    // As many neighbours at the ends as elsewhere, or noise would show there.
    const ptrdiff_t first =
        std::clamp<ptrdiff_t>(i - reach, 0, count - 1 - 2 * reach);
    const ptrdiff_t last = first + 2 * reach;
    const ptrdiff_t furthest = std::max(i - first, last - i);
    LineFit fit(static_cast<double>(i));
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (ptrdiff_t j = first; j <= last; ++j) {
      const double y = points[static_cast<size_t>(j)].value;
      low = std::min(low, y);
      high = std::max(high, y);
      fit.add(static_cast<double>(j), y,
              static_cast<double>(furthest + 1 - std::abs(i - j)));
    }
    // At the ends of a bend the line leaves what was measured.
    out.push_back(points[static_cast<size_t>(i)]);
    out.back().value = std::clamp(fit.at_center(), low, high);
  }
  return out;
}

Points thinned_peaks(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points out;
  for_each_run(points, most / 2, [&](auto first, auto end) {
    const auto [low, high] = std::minmax_element(
        first, end,
        [](const Point& a, const Point& b) { return a.value < b.value; });
    out.push_back(low < high ? *low : *high);
    if (low != high) out.push_back(low < high ? *high : *low);
  });
  return out;
}

Points thinned_mean(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points out;
  for_each_run(points, most, [&](auto first, auto end) {
    Point mean;
    const auto count = static_cast<double>(end - first);
    for (auto point = first; point != end; ++point) {
      mean.steps += point->steps / count;
      mean.tokens += point->tokens / count;
      mean.seconds += point->seconds / count;
      mean.value += point->value / count;
    }
    out.push_back(mean);
  });
  return out;
}

}  // namespace canzona
