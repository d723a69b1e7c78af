// Training and evaluation loss over steps, tokens and time.

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/runs/run_sections.h"

namespace canzona {
namespace {

constexpr size_t kMaxPoints = 480;
constexpr size_t kMaxDots = 120;

std::string curve_text(double loss) { return fmt::format("{:.4g}", loss); }

void add_curves(std::vector<Curve>& curves, const TrainingRun& run,
                size_t number, Axis axis) {
  const Points raw = points_of(run, axis, loss_of);
  const std::string color = color_of(number);
  curves.push_back({.name = run.name + ", every step",
                    .css = "curve faint " + color,
                    .points = thinned_peaks(raw, kMaxPoints)});
  // The loss that runs are compared by stands at the end.
  const Points eval =
      thinned_mean(points_of(run, axis, eval_loss_of), kMaxDots);
  curves.push_back({.name = run.name,
                    .css = "curve plain " + color,
                    .points = drawn_line(smoothed(raw)),
                    .probed = true,
                    .label = eval.empty() ? run.name : ""});
  curves.push_back({.name = run.name + " eval",
                    .css = "curve eval " + color,
                    .points = eval,
                    .dots = true,
                    .probed = true,
                    .label = run.name});
}

// So high that the last three quarters of every run are seen.
double end_of_fall(const std::vector<TrainingRun>& runs) {
  double high = 0;
  for (const TrainingRun& run : runs) {
    const Points line = smoothed(points_of(run, Axis::kSteps, loss_of));
    if (!line.empty()) high = std::max(high, line[line.size() / 4].y);
  }
  return high;
}

LineChart loss_chart(const RunView& view, Axis axis, double clip,
                     double width) {
  LineChart chart;
  chart.title = cat("Loss over ", axis_name(axis));
  chart.unit = "loss";
  chart.axis = axis;
  chart.width = width;
  chart.height = width < kDrawingWidth ? 300 : 360;
  chart.right = width < kDrawingWidth ? 116 : 150;
  chart.clip = clip;
  chart.text = curve_text;
  for (size_t i = 0; i < view.runs.size(); ++i)
    add_curves(chart.curves, view.runs[i], i, axis);
  return chart;
}

// A choice that needs no script: the panel follows the inputs that are checked.
void put_choice(Html& out, const char* group, const char* css, size_t number,
                const char* text) {
  out.put(
      "<input type=\"radio\" name=\"{0}\" id=\"{0}{1}\" class=\"{2}{1}\"{4}>"
      "<label for=\"{0}{1}\">{3}</label>",
      group, number, css, text, Markup{number == 0 ? " checked" : ""});
}

void put_panels(Html& out, const RunView& view) {
  const double clip = end_of_fall(view.runs);
  out.add("<div class=\"choices\">");
  for (size_t x = 0; x < std::size(kAxes); ++x)
    put_choice(out, "loss-over-", "x", x, axis_name(kAxes[x]));
  out.add("<span></span>");
  put_choice(out, "loss-part-", "z", 0, "whole run");
  put_choice(out, "loss-part-", "z", 1, "the end, larger");
  for (size_t x = 0; x < std::size(kAxes); ++x)
    for (size_t z = 0; z < 2; ++z) {
      out.put("<div class=\"panel p{}{}\">", x, z);
      put_drawing(
          out,
          [&](double width) {
            return draw(loss_chart(view, kAxes[x], z == 0 ? 0 : clip, width));
          },
          "");
      out.add("</div>");
    }
  out.add("</div>\n");
}

bool any_evaluation(const RunView& view) {
  return std::any_of(
      view.runs.begin(), view.runs.end(),
      [](const TrainingRun& run) { return std::isfinite(run.eval_loss()); });
}

}  // namespace

Points drawn_line(const Points& points) {
  Points line = thinned_mean(points, kMaxPoints);
  if (!points.empty() && line.back().x < points.back().x)
    line.push_back(points.back());
  return line;
}

void add_losses(Html& out, const RunView& view) {
  begin_section(out, "loss", "Loss");
  const bool any =
      std::any_of(view.runs.begin(), view.runs.end(),
                  [](const TrainingRun& run) { return !run.steps.empty(); });
  if (!any) {
    out.add("<p>No steps were recorded.</p>");
    end_section(out);
    return;
  }
  put_panels(out, view);
  out.put(
      "<p class=\"note\">Pale: training loss of every step; line: the same, "
      "smoothed{}. Point at the drawing to read values.</p>",
      any_evaluation(view)
          ? "; dots: loss on text that is held back from training"
          : "");
  end_section(out);
}

}  // namespace canzona
