// What the optimizer did in every step, and how fast it went.

#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/runs/run_sections.h"

namespace canzona {
namespace {

std::string small_text(double value) { return fmt::format("{:.3g}", value); }
std::string count_text(double value) {
  return value < 10000 ? fmt::format("{:.4g}", value) : human_count(value);
}
std::string milliseconds_text(double value) {
  return fmt::format("{:.3g} ms", value);
}

struct Panel {
  const char* title;
  const char* unit;
  Figure figure;
  std::string (*text)(double);
};

constexpr Panel kPanels[] = {
    {"Learning rate", "learning rate",
     [](const StepMetrics& m) { return m.lr; }, small_text},
    {"Norm of the gradient", "gradient norm, before clipping",
     [](const StepMetrics& m) { return m.grad_norm; }, small_text},
    {"Tokens per second", "tokens / s",
     [](const StepMetrics& m) { return m.tokens_per_second; }, count_text},
    {"Optimizer", "optimizer, per step",
     [](const StepMetrics& m) { return m.optimizer_ms; }, milliseconds_text},
    {"Communication", "links busy, per step",
     [](const StepMetrics& m) { return m.comm_ms; }, milliseconds_text},
    {"Hidden communication", "of it hidden behind compute, %",
     [](const StepMetrics& m) { return 100 * m.hidden_fraction; }, small_text},
};

std::string panel_svg(const RunView& view, const Panel& panel) {
  LineChart chart;
  chart.title = panel.title;
  chart.unit = panel.unit;
  chart.width = kDrawingWidth / 2;
  chart.height = 190;
  chart.right = 16;
  chart.from_zero = true;
  chart.text = panel.text;
  for (size_t i = 0; i < view.runs.size(); ++i) {
    const Points points = points_of(view.runs[i], Axis::kSteps, panel.figure);
    chart.curves.push_back({.name = view.runs[i].name,
                            .css = "curve plain " + color_of(i),
                            .points = drawn_line(points),
                            .probed = true});
  }
  return draw(chart);
}

void put_skipped(Html& out, const RunView& view) {
  for (const TrainingRun& run : view.runs)
    if (const std::string skipped = skipped_remark(run); !skipped.empty())
      out.put("<p class=\"note\">{}: {}.</p>", run.name, skipped);
}

}  // namespace

void add_optimization(Html& out, const RunView& view) {
  begin_section(out, "optimization", "Optimization and speed");
  out.add("<div class=\"pairs\">");
  for (const Panel& panel : kPanels)
    put_figure(out, panel_svg(view, panel), "");
  out.add("</div>\n");
  if (view.several()) {
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < view.runs.size(); ++i)
      entries.push_back({color_of(i), view.runs[i].name});
    put_legend(out, entries);
  }
  put_skipped(out, view);
  end_section(out);
}

}  // namespace canzona
