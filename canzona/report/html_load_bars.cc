#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/html_loads.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

constexpr double kBarsHeight = 220;

double largest(const std::vector<LoadSeries>& series,
               const std::vector<Reference>& references) {
  double top = 0;
  for (const LoadSeries& one : series) {
    for (double load : one.loads) top = std::max(top, load);
  }
  for (const Reference& one : references) top = std::max(top, one.value);
  return top;
}

void draw_bars(Chart& chart, const ChartSlots& slots, const Mesh& mesh,
               const LoadSeries& one, double first, double width) {
  for (size_t rank = 0; rank < one.loads.size(); ++rank) {
    const double load = one.loads[rank];
    const double y = chart.y(load);
    chart.svg().rect(
        {slots.at(static_cast<double>(rank)) + first, y, width,
         std::max(chart.bottom() - y, load > 0 ? 1.0 : 0.0)},
        one.css,
        cat(rank_title(mesh, static_cast<int32_t>(rank)), ", ", one.name, ": ",
            load > 0 ? ratio_text(load) + " × mean" : "idle"),
        cat("rank:", rank));
  }
}

// Rank numbers, and under them the homes where each has several ranks.
void label_ranks(Chart& chart, const ChartSlots& slots, const Mesh& mesh) {
  const int32_t every = std::max(1, static_cast<int32_t>(18 / slots.width));
  for (int32_t rank = 0; rank < mesh.world(); rank += every) {
    chart.svg().text(slots.at(rank + 0.5), chart.bottom() + 14, "middle",
                     std::to_string(rank));
  }
  const double home_width = slots.width * mesh.tp;
  if (mesh.tp == 1) {
    chart.svg().text(slots.left, chart.bottom() + 30, "start dim",
                     mesh.pp == 1 ? "rank = home" : "rank");
    return;
  }
  const int32_t skip = std::max(1, static_cast<int32_t>(50 / home_width) + 1);
  for (int32_t first = 0; first < mesh.world(); first += mesh.tp) {
    const int32_t home = coordinates_of(mesh, first).home;
    chart.svg().line(slots.at(first) + 1, chart.bottom() + 19,
                     slots.at(first + mesh.tp) - 1, chart.bottom() + 19,
                     "axis");
    if (home_width < 50 && home % skip != 0) continue;
    chart.svg().text(
        slots.at(first + mesh.tp * 0.5), chart.bottom() + 31, "middle dim",
        mesh.pp > 1 && home_width > 90
            ? cat("stage ", coordinates_of(mesh, first).stage, ", home ", home)
            : cat("home ", home));
  }
}

}  // namespace

std::string load_bars(const Mesh& mesh, const std::vector<LoadSeries>& series,
                      const std::vector<Reference>& references, double width) {
  const double top = largest(series, references) * 1.06;
  Chart chart("Load per rank, as a multiple of the mean", kBarsHeight, top, 38,
              width);
  chart.draw_axis(plain_ticks(top));
  const ChartSlots slots(chart, static_cast<size_t>(mesh.world()));
  const double gap = slots.width * 0.18;
  const double bar = (slots.width - gap) / static_cast<double>(series.size());
  for (size_t i = 0; i < series.size(); ++i) {
    draw_bars(chart, slots, mesh, series[i],
              gap / 2 + bar * static_cast<double>(i), bar);
  }
  chart.draw_references(references);
  label_ranks(chart, slots, mesh);
  return chart.take();
}

}  // namespace canzona
