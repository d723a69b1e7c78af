#include "canzona/report/runs/run_sections.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/html.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"

namespace canzona {

// Training and evaluation loss over steps, tokens and time.
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

// Shows what the optimizer did in every step, and how fast it went.
namespace {

std::string small_text(double value) { return fmt::format("{:.3g}", value); }
std::string tokens_text(double value) {
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
     [](const StepMetrics& m) { return m.tokens_per_second; }, tokens_text},
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

// Those that were skipped, and those whose loss stood out.
void put_odd_steps(Html& out, const RunView& view) {
  for (const TrainingRun& run : view.runs)
    for (const std::string& remark :
         {skipped_remark(run),
          run.summary ? spikes_text(*run.summary) : std::string()})
      if (!remark.empty())
        out.put("<p class=\"note\">{}: {}.</p>", run.name, remark);
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
  put_odd_steps(out, view);
  end_section(out);
}

// Shows what time and memory of every rank went to, and the plan's balance.
namespace {

constexpr size_t kMaxBars = 96;

struct Share {
  const char* name;
  const char* css;
  double RankSummary::*field;
};
constexpr Share kTimes[] = {
    {"forward and backward", "s0", &RankSummary::forward_backward_seconds},
    {"optimizer", "s1", &RankSummary::optimizer_seconds},
    {"waiting for other ranks", "s5", &RankSummary::waited_seconds},
    {"evaluation, records", "every", &RankSummary::other_seconds},
};

// A bar of stacked shares.
struct Bar {
  std::string label;
  std::string title;
  std::vector<double> shares;
};

double total(const Bar& bar) {
  double sum = 0;
  for (const double share : bar.shares) sum += std::max(share, 0.0);
  return sum;
}

using AmountText = std::string (*)(double);

std::string stacked_bars(const std::string& name, const std::vector<Bar>& bars,
                         const std::vector<LegendEntry>& kinds,
                         std::vector<Tick> (*ticks)(double), AmountText text,
                         const char* below, double drawing_width) {
  double top = 0;
  for (const Bar& bar : bars) top = std::max(top, total(bar));
  top = top > 0 ? top * 1.06 : 1;
  Chart chart(name, 240, top, 38, drawing_width);
  chart.draw_axis(ticks(top));
  const ChartSlots slots(chart, bars.size());
  const size_t every =
      std::max<size_t>(1, static_cast<size_t>(34 / std::max(slots.width, 1.0)));
  const auto letters = static_cast<size_t>(std::max(
      4.0, slots.width * static_cast<double>(every) / text_width("0")));
  for (size_t i = 0; i < bars.size(); ++i) {
    double under = 0;
    for (size_t k = 0; k < kinds.size(); ++k) {
      const double amount = std::max(bars[i].shares[k], 0.0);
      if (amount == 0) continue;
      const double y = chart.y(under + amount);
      chart.svg().rect({slots.at(static_cast<double>(i) + 0.12), y,
                        slots.width * 0.76, chart.y(under) - y},
                       "run " + kinds[k].css,
                       cat(bars[i].title, ", ", kinds[k].text, ": ",
                           text(amount), " of ", text(total(bars[i]))));
      under += amount;
    }
    if (i % every == 0)
      chart.svg().text(slots.at(static_cast<double>(i) + 0.5),
                       chart.bottom() + 15, "middle",
                       shorten(bars[i].label, letters));
  }
  chart.svg().text((chart.left() + chart.right()) / 2, chart.bottom() + 31,
                   "middle dim", below);
  return chart.take();
}

std::string seconds_text(double seconds) { return human_seconds(seconds); }
std::vector<Tick> second_ticks(double top) {
  std::vector<Tick> ticks;
  for (const double value : round_ticks(top, 5))
    ticks.push_back({value, value > 0 ? human_seconds(value) : "0"});
  return ticks;
}

std::vector<LegendEntry> time_kinds() {
  std::vector<LegendEntry> kinds;
  for (const Share& share : kTimes) kinds.push_back({share.css, share.name});
  return kinds;
}

// Ranks that are drawn: all, or so many at equal distances.
std::vector<const RankSummary*> some_ranks(const RunSummary& summary) {
  std::vector<const RankSummary*> ranks;
  const size_t step = (summary.per_rank.size() + kMaxBars - 1) / kMaxBars;
  for (size_t i = 0; i < summary.per_rank.size(); i += step)
    ranks.push_back(&summary.per_rank[i]);
  return ranks;
}

double per_step(const RunSummary& summary, double seconds) {
  const int64_t steps = summary.steps_since_start();
  return steps > 0 ? seconds / static_cast<double>(steps) : seconds;
}

Bar times_of(const RunSummary& summary, const RankSummary& rank) {
  Bar bar{cat(rank.rank), cat("rank ", rank.rank), {}};
  for (const Share& share : kTimes)
    bar.shares.push_back(per_step(summary, rank.*share.field));
  return bar;
}

// The mean of a run's ranks, as one bar.
Bar mean_times(const TrainingRun& run) {
  Bar bar{run.name, run.name, std::vector<double>(std::size(kTimes), 0.0)};
  const auto count = static_cast<double>(run.summary->per_rank.size());
  for (const RankSummary& rank : run.summary->per_rank)
    for (size_t k = 0; k < std::size(kTimes); ++k)
      bar.shares[k] += per_step(*run.summary, rank.*kTimes[k].field) / count;
  return bar;
}

bool has_ranks(const TrainingRun& run) {
  return run.summary && !run.summary->per_rank.empty();
}

std::vector<Bar> bars_of_runs(const RunView& view) {
  std::vector<Bar> bars;
  for (const TrainingRun& run : view.runs)
    if (has_ranks(run)) bars.push_back(mean_times(run));
  return bars;
}

// Says for how much of the time in which links were busy nobody waited.
std::string hidden_text(const RunSummary& summary) {
  double busy = 0, waited = 0;
  for (const RankSummary& rank : summary.per_rank) {
    busy += rank.comm_busy_seconds;
    waited += rank.waited_seconds;
  }
  const auto count = static_cast<double>(summary.per_rank.size());
  if (!(busy > 0)) return "No bytes moved between ranks.";
  return cat("Links were busy for ",
             human_seconds(per_step(summary, busy / count)),
             " of a step; compute waited ",
             human_seconds(per_step(summary, waited / count)), ".");
}

}  // namespace

void add_times(Html& out, const RunView& view) {
  if (std::none_of(view.runs.begin(), view.runs.end(), has_ranks)) return;
  begin_section(out, "time", "Where the time of a step goes");
  put_legend(out, time_kinds());
  if (view.several()) {
    const std::vector<Bar> bars = bars_of_runs(view);
    put_drawing(
        out,
        [&](double width) {
          return stacked_bars("Time of a step, by run", bars, time_kinds(),
                              second_ticks, seconds_text, "mean over ranks",
                              width);
        },
        "");
  } else {
    const RunSummary& summary = *view.first().summary;
    std::vector<Bar> bars;
    for (const RankSummary* rank : some_ranks(summary))
      bars.push_back(times_of(summary, *rank));
    put_drawing(
        out,
        [&](double width) {
          return stacked_bars("Time of a step, by rank", bars, time_kinds(),
                              second_ticks, seconds_text, "rank", width);
        },
        "");
    out.put("<p class=\"note\">{}</p>", hidden_text(summary));
    if (const std::string late = late_text(summary); !late.empty())
      out.put("<p class=\"note\"><b>{}.</b></p>", late);
  }
  end_section(out);
}

void add_run_memory(Html& out, const RunView& view) {
  if (view.several() || !has_ranks(view.first())) return;
  const RunSummary& summary = *view.first().summary;
  std::vector<Bar> bars;
  for (const RankSummary* rank : some_ranks(summary)) {
    const auto reserved = static_cast<double>(rank->reserved_bytes);
    const auto predicted = static_cast<double>(rank->predicted_bytes);
    bars.push_back({cat(rank->rank),
                    cat("rank ", rank->rank),
                    {reserved, std::max(predicted - reserved, 0.0)}});
  }
  if (std::all_of(bars.begin(), bars.end(),
                  [](const Bar& bar) { return total(bar) == 0; }))
    return;
  const std::vector<LegendEntry> kinds = {{"s0", "reserved"},
                                          {"adamw", "predicted, not needed"}};
  begin_section(out, "memory", "Memory");
  put_legend(out, kinds);
  put_drawing(
      out,
      [&](double width) {
        return stacked_bars("Memory by rank", bars, kinds, byte_ticks,
                            bytes_text, "rank", width);
      },
      "");
  end_section(out);
}

void add_run_plan(Html& out, const RunView& view) {
  if (view.several() || !has_ranks(view.first())) return;
  const RunSummary& summary = *view.first().summary;
  std::vector<Bar> bars;
  double largest = 0;
  for (const RankSummary* rank : some_ranks(summary)) {
    largest = std::max(largest, rank->load);
    bars.push_back({cat(rank->rank),
                    rank->owned_matrices < 0
                        ? cat("rank ", rank->rank)
                        : cat("rank ", rank->rank, ", owns ",
                              counted(rank->owned_matrices, "matrix")),
                    {rank->load}});
  }
  if (!(largest > 0)) return;
  begin_section(out, "plan", "Plan");
  out.put(
      "<p>Strategy <b>{}</b>: the rank with most matrix work has {} × the "
      "mean.</p>",
      summary.strategy, ratio_text(largest));
  put_drawing(
      out,
      [&](double width) {
        return stacked_bars("Matrix work by rank", bars,
                            {{"s0", "matrix work"}}, plain_ticks, ratio_text,
                            "rank", width);
      },
      "Planned matrix work of every rank, as a multiple of the mean.");
  end_section(out);
}

}  // namespace canzona
