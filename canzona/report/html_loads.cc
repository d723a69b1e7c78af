// Load per rank, before and after, against the mean and the lower bound.

#include "canzona/report/html_loads.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"

namespace canzona {
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
  for (const HeatClass& one : heat_classes()) {
    entries.push_back({one.css, one.text});
  }
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
