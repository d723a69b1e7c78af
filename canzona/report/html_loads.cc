#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

constexpr double kBarsHeight = 220;

double largest(const std::vector<LoadSeries>& series,
               const std::vector<Reference>& references) {
  double top = 0;
  for (const LoadSeries& one : series)
    for (double load : one.loads) top = std::max(top, load);
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

namespace {

constexpr double kCurveHeight = 200;
// More points than pixels say nothing.
constexpr size_t kMaxCurvePoints = 1024;

std::vector<double> sorted_down(std::vector<double> loads) {
  std::sort(loads.rbegin(), loads.rend());
  if (loads.size() <= kMaxCurvePoints) return loads;
  std::vector<double> some;
  for (size_t i = 0; i < kMaxCurvePoints; ++i)
    some.push_back(loads[i * (loads.size() - 1) / (kMaxCurvePoints - 1)]);
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
  for (const LoadSeries& one : series)
    top = std::max(top, *std::max_element(one.loads.begin(), one.loads.end()));
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

namespace {

constexpr int32_t kMaxCells = 8192;
constexpr int32_t kMaxNarrowCells = 1024;
constexpr int32_t kMaxPlanes = 64;
constexpr int32_t kCellsPerLine = 128;
constexpr int32_t kCellsPerNarrowLine = 32;
constexpr double kGridLeft = 64;
constexpr double kWidestCell = 30;
constexpr double kTallestCell = 16;

// Upper ends of the classes, as multiples of the lower bound. The sixth is "at
// the bound": near enough to it that a reader need not care.
constexpr std::array kLimits = {0.0,  0.25, 0.5,  0.75, 0.95,
                                1.02, 1.1,  1.25, 1.5,  2.0};
constexpr size_t kAtBound = 5;

size_t heat_of(double load) {
  const auto* end = std::lower_bound(kLimits.begin(), kLimits.end(), load);
  return static_cast<size_t>(end - kLimits.begin());
}

// Ranks become cells: `homes` × `planes` of them share one.
struct Cells {
  int32_t homes = 1;
  int32_t planes = 1;
  int32_t per_stage = 1;  // cells from left to right
  int32_t rows = 1;       // cells downwards
  int32_t lines = 1;      // a stage takes several where homes are many
  int32_t per_line = 1;
};

int32_t ceil_div(int64_t a, int64_t b) {
  return static_cast<int32_t>((a + b - 1) / b);
}

Cells make_cells(const Mesh& mesh, bool narrow) {
  Cells cells;
  cells.planes = ceil_div(mesh.tp, kMaxPlanes);
  cells.rows = ceil_div(mesh.tp, cells.planes);
  const int64_t all = int64_t{mesh.pp} * mesh.homes() * cells.rows;
  cells.homes = std::min(mesh.homes(),
                         ceil_div(all, narrow ? kMaxNarrowCells : kMaxCells));
  cells.per_stage = ceil_div(mesh.homes(), cells.homes);
  cells.lines =
      ceil_div(cells.per_stage, narrow ? kCellsPerNarrowLine : kCellsPerLine);
  cells.per_line = ceil_div(cells.per_stage, cells.lines);
  return cells;
}

// The busiest rank of a cell.
int32_t busiest(const Mesh& mesh, const Cells& cells, int32_t stage,
                int32_t column, int32_t row, const std::vector<double>& loads) {
  int32_t best = mesh.rank(stage, column * cells.homes, row * cells.planes);
  for (int32_t h = column * cells.homes;
       h < std::min((column + 1) * cells.homes, mesh.homes()); ++h) {
    for (int32_t t = row * cells.planes;
         t < std::min((row + 1) * cells.planes, mesh.tp); ++t) {
      const int32_t rank = mesh.rank(stage, h, t);
      if (loads[static_cast<size_t>(rank)] > loads[static_cast<size_t>(best)])
        best = rank;
    }
  }
  return best;
}

class GridDrawing {
 public:
  GridDrawing(const Mesh& mesh, const LoadSeries& series, double bound,
              double width)
      : mesh_(mesh),
        series_(series),
        bound_(bound),
        cells_(make_cells(mesh, width < kDrawingWidth)),
        width_(std::min(kWidestCell, (width - kGridLeft) / cells_.per_line)),
        height_(std::min(kTallestCell, width_)),
        band_(height_ * cells_.rows + 20),
        svg_(width, band_ * cells_.lines * mesh.pp + 2,
             cat("Load of every rank, ", series.name)) {}

  LoadGrid draw() {
    for (int32_t stage = 0; stage < mesh_.pp; ++stage)
      for (int32_t line = 0; line < cells_.lines; ++line)
        draw_line(stage, line);
    return {svg_.take(), note()};
  }

 private:
  void draw_line(int32_t stage, int32_t line) {
    const double top = band_ * (stage * cells_.lines + line) + 16;
    const int32_t first = line * cells_.per_line;
    const int32_t end = std::min(first + cells_.per_line, cells_.per_stage);
    label(stage, first, end, top);
    for (int32_t row = 0; row < cells_.rows; ++row) {
      for (int32_t column = first; column < end; ++column) {
        draw_cell(stage, column, row, kGridLeft + width_ * (column - first),
                  top + height_ * row);
      }
    }
  }

  void draw_cell(int32_t stage, int32_t column, int32_t row, double x,
                 double y) {
    const int32_t rank =
        busiest(mesh_, cells_, stage, column, row, series_.loads);
    const double load = series_.loads[static_cast<size_t>(rank)];
    svg_.rect({x, y, width_, height_}, cat("cell heat", heat_of(load / bound_)),
              cat(rank_title(mesh_, rank), ": ",
                  load > 0 ? ratio_text(load) + " × mean" : "idle"),
              cat("rank:", rank));
  }

  void label(int32_t stage, int32_t first, int32_t end, double top) {
    const int32_t every = width_ >= 16 ? 4 : width_ >= 8 ? 8 : 16;
    for (int32_t column = first; column < end; column += every) {
      svg_.text(kGridLeft + width_ * (column - first) + 1, top - 4, "start",
                std::to_string(column * cells_.homes));
    }
    svg_.text(kGridLeft - 8, top - 4, "end dim",
              mesh_.pp > 1 ? cat("stage ", stage) : "home");
    svg_.text(kGridLeft - 8, top + std::min(height_, 11.0), "end dim", "t 0");
    if (height_ * cells_.rows < 26) return;
    svg_.text(kGridLeft - 8, top + height_ * cells_.rows - 2, "end dim",
              cat("t ", mesh_.tp - 1));
  }

  std::string note() const {
    if (cells_.homes == 1 && cells_.planes == 1) return "";
    return cat("Each cell stands for ", cells_.homes * cells_.planes,
               " ranks and shows the busiest of them.");
  }

  const Mesh& mesh_;
  const LoadSeries& series_;
  double bound_;
  Cells cells_;
  double width_;
  double height_;
  double band_;
  Svg svg_;
};

}  // namespace

LoadGrid load_grid(const Mesh& mesh, const LoadSeries& series, double bound,
                   double width) {
  return GridDrawing(mesh, series, bound, width).draw();
}

std::vector<HeatClass> heat_classes() {
  std::vector<HeatClass> classes{{"heat0", "idle"}};
  for (size_t i = 1; i < kLimits.size(); ++i) {
    classes.push_back({cat("heat", i), i == kAtBound
                                           ? "at the bound"
                                           : fmt::format("≤ {}", kLimits[i])});
  }
  classes.push_back({cat("heat", kLimits.size()),
                     fmt::format("> {} × the bound", kLimits.back())});
  return classes;
}

// Load per rank, before and after, against the mean and the lower bound.
namespace {

// A strategy of which even the least loaded rank carries more than this many
// times the mean repeats work; its line would flatten all others.
constexpr double kOffTheChart = 3;

std::vector<LoadSeries> pair_series(const PageView& view, double unit) {
  if (!view.two()) {
    return {{view.plan().plan.options.strategy, "after",
             rank_loads(view.plan(), unit)}};
  }
  return {{cat("before, ", view.old_plan().plan.options.strategy), "before",
           rank_loads(view.old_plan(), unit)},
          {cat("after, ", view.plan().plan.options.strategy), "after",
           rank_loads(view.plan(), unit)}};
}

double bound_of(const PageView& view, double unit) {
  return static_cast<double>(view.plan().plan.summary.bound.value()) / unit;
}

std::vector<Reference> references(const PageView& view, double unit) {
  const PlanSummary& summary = view.plan().plan.summary;
  const double bound = bound_of(view, unit);
  std::vector<Reference> lines{
      {1, "mean 1", "mean-line"},
      {bound, "bound " + ratio_text(bound), "bound-line"}};
  if (!view.two()) {
    const double makespan =
        static_cast<double>(summary.makespan.value()) / unit;
    lines.push_back(
        {makespan, "makespan " + ratio_text(makespan), "makespan-line"});
  }
  return lines;
}

std::string caption(const PageView& view, double unit) {
  std::string text;
  for (const ReportPlan* shown : view.pair()) {
    const std::vector<double> loads = rank_loads(*shown, unit);
    const auto [low, high] = std::minmax_element(loads.begin(), loads.end());
    text += cat(shown->plan.options.strategy, ": busiest rank ",
                ratio_text(*high), ", least loaded ", ratio_text(*low), ", ",
                shown->balance.idle_ranks, " idle. ");
  }
  const Plan& plan = view.plan().plan;
  text += cat("1 = the mean load, ", ticks_text(plan, unit / plan.period),
              " of matrix work per step (predicted, ", rate_text(plan), ").");
  if (plan.period > 1) {
    text += cat(" Loads are over a period of ", plan.period,
                " steps. The makespan adds up the largest load of each step, "
                "so that it may lie above the busiest rank.");
  }
  return text;
}

void put_series_legend(Html& out, const std::vector<LoadSeries>& series) {
  std::vector<LegendEntry> entries;
  for (const LoadSeries& one : series) entries.push_back({one.css, one.name});
  put_legend(out, entries);
}

void put_grids(Html& out, const Mesh& mesh,
               const std::vector<LoadSeries>& series, double bound) {
  std::vector<LegendEntry> entries;
  for (const HeatClass& one : heat_classes())
    entries.push_back({one.css, one.text});
  for (const LoadSeries& one : series) {
    const LoadGrid grid = load_grid(mesh, one, bound);
    out.put("<h3>{}</h3>", one.name);
    put_figure(out, grid.svg, load_grid(mesh, one, bound, kNarrowDrawing).svg,
               grid.note);
  }
  put_legend(out, entries);
}

void put_curve(Html& out, const std::vector<LoadSeries>& series,
               const std::vector<Reference>& references,
               const std::string& note) {
  put_drawing(
      out, [&](double width) { return load_curve(series, references, width); },
      note);
}

// `before` and `after` keep their colours; the others share the rest.
std::string colour_of(const PageView& view, size_t plan) {
  if (plan == view.after) return "s0";
  if (plan == view.before) return "s1";
  const size_t passed =
      (plan > view.after ? 1 : 0) + (plan > view.before ? 1 : 0);
  return cat("s", 2 + (plan - passed) % 4);
}

// All strategies in one drawing, without those that would flatten it.
void put_all_curves(Html& out, const PageView& view, double unit) {
  std::vector<LoadSeries> lines;
  std::vector<LegendEntry> entries;
  std::string left_out;
  for (size_t i = 0; i < view.plans.size(); ++i) {
    const std::string& name = view.plans[i].plan.options.strategy;
    std::vector<double> loads = rank_loads(view.plans[i], unit);
    const auto [low, high] = std::minmax_element(loads.begin(), loads.end());
    if (*low > kOffTheChart && i != view.after) {
      left_out += cat(left_out.empty() ? "Off the chart, every rank repeats "
                                         "work: "
                                       : ", ",
                      name, " (", ratio_text(*high), ")");
      continue;
    }
    const std::string colour = colour_of(view, i);
    entries.push_back(
        {"key " + colour, cat(name, " (at most ", ratio_text(*high), ")")});
    lines.push_back({name, "curve " + colour, std::move(loads)});
  }
  if (lines.empty()) return;
  out.put("<h3>{}</h3>", view.plans.size() > 2
                             ? "All strategies, ranks sorted by load"
                             : "Ranks sorted by load");
  put_curve(out, lines, references(view, unit), left_out);
  put_legend(out, entries);
}

}  // namespace

void add_loads(Html& out, const PageView& view) {
  begin_section(out, "loads", "Load per rank");
  const double unit = mean_load(view.plan());
  if (!(unit > 0)) {
    out.add("<p>No matrices, no load to balance.</p>");
    end_section(out);
    return;
  }
  const Mesh& mesh = view.plan().plan.mesh;
  std::vector<LoadSeries> series = pair_series(view, unit);
  if (series[0].loads.size() <= kMaxBars) {
    const std::vector<Reference> lines = references(view, unit);
    put_drawing(
        out,
        [&](double width) { return load_bars(mesh, series, lines, width); },
        caption(view, unit));
    if (series.size() > 1) put_series_legend(out, series);
  } else {
    put_grids(out, mesh, series, bound_of(view, unit));
    out.put(
        "<p class=\"note\">Orange: above the lower bound, all others "
        "wait for it. Blue: below it. {}</p>",
        caption(view, unit));
  }
  if (view.several()) {
    put_all_curves(out, view, unit);
  } else if (series[0].loads.size() > kMaxBars) {
    out.add("<h3>Ranks sorted by load</h3>");
    series[0].css = "curve s0";
    put_curve(out, series, references(view, unit), "");
  }
  end_section(out);
}

}  // namespace canzona
