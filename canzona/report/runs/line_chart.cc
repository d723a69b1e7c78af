#include "canzona/report/runs/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"

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
    if (std::fabs(point.x) < kLargest && std::fabs(point.y) < kLargest)
      points.push_back(point);
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
      const double y = points[static_cast<size_t>(j)].y;
      low = std::min(low, y);
      high = std::max(high, y);
      fit.add(static_cast<double>(j), y,
              static_cast<double>(furthest + 1 - std::abs(i - j)));
    }
    // At the ends of a bend the line leaves what was measured.
    out.push_back({points[static_cast<size_t>(i)].x,
                   std::clamp(fit.at_center(), low, high)});
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

namespace {

constexpr double kLeft = 58;
constexpr double kAbove = 22;
constexpr double kBelow = 34;
constexpr int kProbes = 64;

struct Range {
  double low = 0;
  double high = 1;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double share(double value) const { return (value - low) / (high - low); }
};

class Drawing {
 public:
  explicit Drawing(const LineChart& chart)
      : chart_(chart),
        svg_(chart.width, chart.height, chart.title),
        x_(x_range(chart)),
        y_(y_range(chart)) {}

  std::string run() {
    draw_axes();
    for (const Curve& curve : chart_.curves) draw_curve(curve);
    draw_labels();
    draw_probes();
    return svg_.take();
  }

 private:
  static Range x_range(const LineChart& chart) {
    Range range{0, 0};
    for (const Curve& curve : chart.curves)
      for (const Point& point : curve.points) range.include(point.x);
    if (range.high <= range.low) range.high = range.low + 1;
    return range;
  }

  static Range y_range(const LineChart& chart) {
    Range range{HUGE_VAL, -HUGE_VAL};
    for (const Curve& curve : chart.curves)
      for (const Point& point : curve.points)
        if (chart.clip <= 0 || point.y <= chart.clip) range.include(point.y);
    if (chart.clip > 0) range.include(chart.clip);
    if (chart.from_zero) range.include(0);
    if (!(range.low <= range.high)) return {0, 1};
    // Values that differ by rounding alone are drawn as one.
    const double size = std::max(std::fabs(range.low), std::fabs(range.high));
    const double span = range.high - range.low;
    const double margin = span > 1e-9 * size ? span * 0.05 : size / 10 + 1e-12;
    if (!chart.from_zero) range.low -= margin;
    if (chart.clip <= 0) range.high += margin;
    return range;
  }

  double right() const { return chart_.width - chart_.right; }
  double bottom() const { return chart_.height - kBelow; }
  double x(double value) const {
    return kLeft + x_.share(value) * (right() - kLeft);
  }
  double y(double value) const {
    return bottom() - y_.share(value) * (bottom() - kAbove);
  }
  std::string text(double value) const {
    return chart_.text != nullptr ? chart_.text(value)
                                  : fmt::format("{:.4g}", value);
  }

  void draw_axes() {
    for (const double tick : ticks_between(y_.low, y_.high, 5)) {
      svg_.line(kLeft, y(tick), right(), y(tick), "grid");
      svg_.text(kLeft - 6, y(tick) + 4, "end", text(tick));
    }
    svg_.line(kLeft, bottom(), right(), bottom(), "axis");
    const int count = static_cast<int>((right() - kLeft) / 110);
    for (const double tick : ticks_between(x_.low, x_.high, count))
      svg_.text(x(tick), bottom() + 16, "middle",
                position_text(tick, chart_.axis));
    svg_.text((kLeft + right()) / 2, bottom() + 31, "middle dim",
              axis_name(chart_.axis));
    svg_.text(4, 11, "start dim", chart_.unit);
  }

  bool visible(const Point& point) const {
    return chart_.clip <= 0 || point.y <= chart_.clip;
  }

  // Returns the point at which the line between two points, one of them above
  // the clip, meets it.
  Point at_clip(const Point& a, const Point& b) const {
    const double share = (chart_.clip - a.y) / (b.y - a.y);
    return {a.x + share * (b.x - a.x), chart_.clip};
  }

  std::string path_of(const Points& points) const {
    std::string d;
    const auto add = [&](char command, const Point& point) {
      d += cat(command, coordinate(x(point.x)), " ", coordinate(y(point.y)));
    };
    for (size_t i = 0; i < points.size(); ++i) {
      const bool before = i > 0 && visible(points[i - 1]);
      if (!visible(points[i])) {
        if (before) add('L', at_clip(points[i - 1], points[i]));
        continue;
      }
      if (i > 0 && !before) {
        add('M', at_clip(points[i - 1], points[i]));
        add('L', points[i]);
      } else {
        add(before ? 'L' : 'M', points[i]);
      }
    }
    return d;
  }

  void draw_curve(const Curve& curve) {
    if (curve.points.empty()) return;
    if (const std::string d = path_of(curve.points); !d.empty())
      svg_.path(d, curve.css, curve.name);
    if (!curve.dots) return;
    std::string dots;
    for (const Point& point : curve.points)
      if (visible(point)) dots += dot(x(point.x), y(point.y));
    svg_.path(dots, "dot " + curve.css, curve.name);
  }

  static std::string dot(double x, double y) {
    constexpr const char* kCircle = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z";
    return cat("M", coordinate(x), " ", coordinate(y), kCircle);
  }

  void draw_labels() {
    std::vector<SideLabel> labels;
    for (const Curve& curve : chart_.curves) {
      if (curve.label.empty() || curve.points.empty()) continue;
      const Point& last = curve.points.back();
      const double at = y(std::min(last.y, y_.high));
      const std::string value = text(last.y);
      labels.push_back({at + 4,
                        cat(value, "  ", shorten(curve.label, room_for(value))),
                        curve.css.substr(curve.css.rfind(' ') + 1)});
    }
    spread_labels(labels, 15);
    for (const SideLabel& label : labels) {
      svg_.path(dot(right() + 11, label.y - 4), "dot curve " + label.css,
                label.text);
      svg_.text(right() + 20, label.y, "start strong", label.text);
    }
  }

  // The letters of a name that have room beside a value.
  size_t room_for(const std::string& value) const {
    const double room = chart_.right - 20 - text_width(value + "  ");
    return static_cast<size_t>(std::max(4.0, room / text_width("0")));
  }

  // The value of a curve at a position: that of the last point before it.
  static const Point* at(const Points& points, double position) {
    const auto after = std::upper_bound(
        points.begin(), points.end(), position,
        [](double x, const Point& point) { return x < point.x; });
    return after == points.begin() ? nullptr : &*(after - 1);
  }

  void draw_probes() {
    const double width = (right() - kLeft) / kProbes;
    for (int i = 0; i < kProbes; ++i) {
      const double end = x_.low + (x_.high - x_.low) * (i + 1) / kProbes;
      std::string values;
      for (const Curve& curve : chart_.curves) {
        const Point* point = curve.probed ? at(curve.points, end) : nullptr;
        // A run that ended before has no value here.
        if (point == nullptr || ended_before(curve, i)) continue;
        values +=
            cat(values.empty() ? ": " : ", ", curve.name, " ", text(point->y));
      }
      if (values.empty()) continue;
      svg_.rect({kLeft + i * width, kAbove, width, bottom() - kAbove}, "probe",
                position_text(end, chart_.axis) + values);
    }
  }

  bool ended_before(const Curve& curve, int probe) const {
    const double begin = x_.low + (x_.high - x_.low) * probe / kProbes;
    return curve.points.back().x < begin;
  }

  const LineChart& chart_;
  Svg svg_;
  Range x_;
  Range y_;
};

}  // namespace

std::vector<double> ticks_between(double low, double high, int count) {
  std::vector<double> ticks;
  const std::vector<double> steps = round_ticks(high - low, std::max(count, 1));
  if (steps.size() < 2) return {low};
  const double step = steps[1];
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * std::max(count, 1); ++i) {
    const double at = (first + i) * step;
    if (at > high + step * 1e-9) break;
    ticks.push_back(first + i == 0 ? 0 : at);
  }
  return ticks;
}

std::string draw(const LineChart& chart) { return Drawing(chart).run(); }

}  // namespace canzona
