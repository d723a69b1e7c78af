#include "canzona/report/runs/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/train_lines.h"

namespace canzona {
namespace {

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

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::kTokens:
      return "tokens";
    case Axis::kSeconds:
      return "time";
    default:
      return "steps";
  }
}

double position_of(const StepMetrics& step, Axis axis) {
  switch (axis) {
    case Axis::kTokens:
      return static_cast<double>(step.tokens);
    case Axis::kSeconds:
      return step.seconds;
    default:
      return static_cast<double>(step.step);
  }
}

std::string position_text(double position, Axis axis) {
  if (axis == Axis::kSeconds)
    return position < 10 ? fmt::format("{:.3g} s", position)
                         : clock_text(position);
  if (axis == Axis::kTokens) return human_count(position);
  return grouped(std::llround(std::clamp(position, 0.0, 1e18)));
}

Points points_of(const TrainingRun& run, Axis axis, Figure figure) {
  Points points;
  for (const StepMetrics& step : run.steps) {
    const Point point{position_of(step, axis), figure(step)};
    if (std::isfinite(point.x) && std::isfinite(point.y))
      points.push_back(point);
  }
  return points;
}

double loss_of(const StepMetrics& step) { return step.loss; }
double eval_loss_of(const StepMetrics& step) {
  return step.eval_loss.value_or(std::numeric_limits<double>::quiet_NaN());
}

Points smoothed(const Points& points) {
  const double half_life =
      std::max(1.0, static_cast<double>(points.size()) / 50);
  const double keep = std::exp2(-1 / half_life);
  Points out;
  double sum = 0, weight = 0;
  for (const Point& point : points) {
    sum = keep * sum + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    out.push_back({point.x, sum / weight});
  }
  return out;
}

Points thinned_peaks(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points out;
  for_each_run(points, most / 2, [&](auto first, auto end) {
    const auto [low, high] = std::minmax_element(
        first, end, [](const Point& a, const Point& b) { return a.y < b.y; });
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
      mean.x += point->x / count;
      mean.y += point->y / count;
    }
    out.push_back(mean);
  });
  return out;
}

}  // namespace canzona
