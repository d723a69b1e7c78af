#include "canzona/report/html_chart.h"

#include <algorithm>

namespace canzona {
namespace {

constexpr double kAbove = 12;
constexpr double kWidestSlot = 104;
constexpr double kSide = 134;
constexpr double kNarrowSide = 126;

}  // namespace

std::vector<Tick> plain_ticks(double top) {
  std::vector<Tick> ticks;
  for (double value : round_ticks(top, 5)) {
    ticks.push_back({value, fmt::format("{:.6g}", value)});
  }
  return ticks;
}

std::vector<Tick> byte_ticks(double top) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double unit = 1;
  size_t name = 0;
  while (top / unit >= 1024 && name + 1 < std::size(kUnits)) {
    unit *= 1024;
    ++name;
  }
  std::vector<Tick> ticks;
  for (double value : round_ticks(top / unit, 5)) {
    ticks.push_back(
        {value * unit,
         value > 0 ? fmt::format("{:.6g} {}", value, kUnits[name]) : "0"});
  }
  return ticks;
}

Chart::Chart(std::string_view title, double height, double top, double below,
             double width)
    : right_(width - (width < kDrawingWidth ? kNarrowSide : kSide)),
      bottom_(kAbove + height),
      top_(top > 0 ? top : 1),
      svg_(width, bottom_ + below, title) {}

double Chart::y(double value) const {
  const double share = std::clamp(value / top_, 0.0, 1.0);
  return bottom_ - share * (bottom_ - kAbove);
}

void Chart::draw_axis(const std::vector<Tick>& ticks) {
  for (const Tick& tick : ticks) {
    svg_.line(left(), y(tick.value), right(), y(tick.value),
              tick.value > 0 ? "grid" : "axis");
    svg_.text(left() - 6, y(tick.value) + 4, "end", tick.text);
  }
}

void Chart::draw_references(const std::vector<Reference>& references) {
  std::vector<SideLabel> labels;
  for (const Reference& reference : references) {
    const double at = y(reference.value);
    svg_.line(left(), at, right(), at, reference.css);
    labels.push_back({at + 4, reference.text, reference.css});
  }
  spread_labels(labels, 14);
  for (const SideLabel& label : labels) {
    svg_.text(right() + 8, label.y, "start " + label.css, label.text);
  }
}

ChartSlots::ChartSlots(const Chart& chart, size_t count) {
  const double wanted = chart.width() / static_cast<double>(count);
  width = std::min(wanted, kWidestSlot);
  const double used = width * static_cast<double>(count);
  left = chart.left() + (chart.width() - used) / 2;
}

}  // namespace canzona
