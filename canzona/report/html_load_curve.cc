#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/html_loads.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

constexpr double kCurveHeight = 200;
// More points than pixels say nothing.
constexpr size_t kMaxCurvePoints = 1024;

std::vector<double> sorted_down(std::vector<double> loads) {
  std::sort(loads.rbegin(), loads.rend());
  if (loads.size() <= kMaxCurvePoints) return loads;
  std::vector<double> some;
  for (size_t i = 0; i < kMaxCurvePoints; ++i) {
    some.push_back(loads[i * (loads.size() - 1) / (kMaxCurvePoints - 1)]);
  }
  return some;
}

// A line of steps; runs of equal loads become one step.
std::string step_path(const Chart& chart, const ChartSlots& slots,
                      const std::vector<double>& loads) {
  std::string d =
      cat("M", coordinate(slots.left), " ", coordinate(chart.y(loads[0])));
  for (size_t i = 0; i < loads.size();) {
    size_t end = i + 1;
    while (end < loads.size() && loads[end] == loads[i]) ++end;
    d += cat("H", coordinate(slots.at(static_cast<double>(end))));
    if (end < loads.size()) d += cat("V", coordinate(chart.y(loads[end])));
    i = end;
  }
  return d;
}

// Small marks under the curve: 0, a quarter, … all of the ranks.
void label_ranks(Chart& chart, const ChartSlots& slots, size_t points,
                 size_t ranks) {
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double share = quarter / 4.0;
    chart.svg().text(slots.at(share * static_cast<double>(points)),
                     chart.bottom() + 16, "middle",
                     grouped(static_cast<int64_t>(
                         share * static_cast<double>(ranks) + 0.5)));
  }
  chart.svg().text(chart.left() + chart.width() / 2, chart.bottom() + 31,
                   "middle dim", "ranks, the busiest first");
}

}  // namespace

std::string load_curve(const std::vector<LoadSeries>& series,
                       const std::vector<Reference>& references, double width) {
  double top = 1.1;
  for (const LoadSeries& one : series) {
    top = std::max(top, *std::max_element(one.loads.begin(), one.loads.end()));
  }
  for (const Reference& one : references) top = std::max(top, one.value);
  top *= 1.06;
  Chart chart("Loads sorted from the busiest rank to the least loaded",
              kCurveHeight, top, 38, width);
  chart.draw_axis(plain_ticks(top));
  chart.draw_references(references);
  const size_t ranks = series[0].loads.size();
  for (const LoadSeries& one : series) {
    const std::vector<double> loads = sorted_down(one.loads);
    ChartSlots slots(chart, loads.size());
    slots.left = chart.left();
    slots.width = chart.width() / static_cast<double>(loads.size());
    chart.svg().path(
        step_path(chart, slots, loads), one.css,
        cat(one.name, ": busiest ", ratio_text(loads.front()),
            ", least loaded ", ratio_text(loads.back()), " × mean"));
    if (&one == &series.back()) label_ranks(chart, slots, loads.size(), ranks);
  }
  return chart.take();
}

}  // namespace canzona
