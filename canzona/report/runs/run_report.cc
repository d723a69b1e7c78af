#include "canzona/report/runs/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/page.h"
#include "canzona/report/runs/curves.h"
#include "canzona/report/train_lines.h"

namespace canzona {
namespace {

constexpr size_t kMaxPoints = 480;
constexpr size_t kMaxDots = 120;

// The loss before anything was learned.
double first_loss(const TrainingRun& run) {
  for (const StepMetrics& step : run.steps)
    if (std::isfinite(step.loss)) return step.loss;
  return std::nan("");
}

// " The run was interrupted."
std::string ending_of(const TrainingRun& run) {
  if (!run.has_ended()) return cat(" The run ", run.remark(), ".");
  if (run.state() == "stopped") return " The run was interrupted.";
  if (run.state() == "diverged") return cat(" It ", run.remark(), ".");
  return "";
}

std::string verdict_of_one(const TrainingRun& run) {
  const double from = first_loss(run), to = run.final_loss();
  if (!std::isfinite(from) || !std::isfinite(to))
    return "The run recorded no loss." + ending_of(run);
  std::string text =
      cat("In ", counted(run.num_steps(), "step"), " and ",
          clock_text(run.seconds()), " the training loss went from ",
          loss_text(from), " to ", loss_text(to), ".");
  if (std::isfinite(run.eval_loss()))
    text += cat(" On text held back from training it is ",
                loss_text(run.eval_loss()), ".");
  return text + ending_of(run);
}

std::string verdict_of_several(const ComparedRuns& all) {
  const TrainingRun& base = all.runs[all.baseline];
  size_t best = all.baseline;
  for (size_t i = 0; i < all.runs.size(); ++i)
    if (all.runs[i].eval_loss() < all.runs[best].eval_loss()) best = i;
  if (!std::isfinite(base.eval_loss()))
    return "The baseline has no evaluation loss to measure others by.";
  if (best == all.baseline)
    return cat("No run ends below the evaluation loss of ", base.name, ", ",
               loss_text(base.eval_loss()), ".");
  std::string text =
      cat(all.runs[best].name, " ends with the lowest evaluation loss, ",
          loss_text(all.runs[best].eval_loss()), " against ",
          loss_text(base.eval_loss()), " of ", base.name);
  if (all.reached[best] && all.reached[best]->steps_ratio > 0)
    text += cat(", and is there after ",
                times_text(all.reached[best]->steps_ratio), " the steps");
  return text + ".";
}

void write_reached(JsonWriter& out, const std::optional<Reached>& reached) {
  out.member("reached");
  if (!reached) {
    out.null();
    return;
  }
  out.begin_object()
      .field("steps", reached->steps)
      .field("tokens", reached->tokens)
      .field("seconds", reached->seconds)
      .field("steps_ratio", reached->steps_ratio)
      .field("tokens_ratio", reached->tokens_ratio)
      .field("seconds_ratio", reached->seconds_ratio)
      .end_object();
}

// As the summary has them.
void write_spikes(JsonWriter& out, const TrainingRun& run) {
  const RunSummary none;
  const RunSummary& summary = run.summary ? *run.summary : none;
  out.field("spikes", summary.spikes)
      .field("spike_step", summary.spike_step)
      .field("spike_loss", summary.spike_loss)
      .field("spike_over", summary.spike_over);
}

// Six digits are more than a drawing shows.
double rounded(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// [steps, tokens, seconds, value], or [steps, value].
void write_points(JsonWriter& out, const char* name, const Points& points,
                  bool all_axes) {
  out.member(name).begin_array();
  for (const Point& point : points) {
    out.begin_array().value(rounded(point.steps));
    if (all_axes)
      out.value(rounded(point.tokens)).value(rounded(point.seconds));
    out.value(rounded(point.value)).end_array();
  }
  out.end_array();
}

// Thinned to what can be seen, with its last point.
Points drawn_line(const Points& points) {
  Points line = thinned_mean(points, kMaxPoints);
  if (!points.empty() && line.back().steps < points.back().steps)
    line.push_back(points.back());
  return line;
}

struct NamedFigure {
  const char* name;
  Figure figure;
};
constexpr NamedFigure kFigures[] = {
    {"learning_rate", [](const StepMetrics& m) { return m.lr; }},
    {"gradient_norm", [](const StepMetrics& m) { return m.grad_norm; }},
    {"tokens_per_second",
     [](const StepMetrics& m) { return m.tokens_per_second; }},
    {"optimizer_ms", [](const StepMetrics& m) { return m.optimizer_ms; }},
    {"communication_ms", [](const StepMetrics& m) { return m.comm_ms; }},
    {"hidden_percent",
     [](const StepMetrics& m) { return 100 * m.hidden_fraction; }},
};

void write_curves(JsonWriter& out, const TrainingRun& run) {
  const Points raw = points_of(run, loss_of);
  out.member("curves").begin_object();
  write_points(out, "every_step", thinned_peaks(raw, kMaxPoints), true);
  write_points(out, "smoothed", drawn_line(smoothed(raw)), true);
  write_points(out, "evaluation",
               thinned_mean(points_of(run, eval_loss_of), kMaxDots), true);
  for (const NamedFigure& one : kFigures)
    write_points(out, one.name, drawn_line(points_of(run, one.figure)), false);
  out.end_object();
}

// Seconds are those of a step.
void write_ranks(JsonWriter& out, const RunSummary& summary) {
  const int64_t steps = std::max<int64_t>(summary.steps_since_start(), 1);
  const auto of_step = [&](double seconds) {
    return rounded(seconds / static_cast<double>(steps));
  };
  out.member("ranks").begin_object().member("columns");
  out.values(std::vector<const char*>{
      "rank", "forward_backward_seconds", "optimizer_seconds", "waited_seconds",
      "other_seconds", "links_busy_seconds", "reserved_bytes",
      "predicted_bytes", "owned_matrices", "load"});
  out.member("rows").begin_array();
  for (const RankSummary& rank : summary.per_rank) {
    out.begin_array().value(rank.rank);
    for (const double seconds :
         {rank.forward_backward_seconds, rank.optimizer_seconds,
          rank.waited_seconds, rank.other_seconds, rank.comm_busy_seconds})
      out.value(of_step(seconds));
    out.value(rank.reserved_bytes).value(rank.predicted_bytes);
    out.value(rank.owned_matrices).value(rounded(rank.load)).end_array();
  }
  out.end_array().end_object();
}

void write_facts(JsonWriter& out, const char* name, const Facts& facts) {
  out.member(name).begin_array();
  for (const auto& [fact, value] : facts)
    out.begin_array().value(fact).value(value).end_array();
  out.end_array();
}

// Writes settings, remarks and the figures that the page draws.
void write_story(JsonWriter& out, const TrainingRun& run) {
  RunSummary none;
  none.ranks = 0;
  const RunSummary& summary = run.summary ? *run.summary : none;
  out.field("first_loss", first_loss(run)).field("remark", run.remark());
  out.field("late", late_text(summary)).member("odd_steps").begin_array();
  for (const std::string& text : {skipped_remark(run), spikes_text(summary)})
    if (!text.empty()) out.value(text);
  out.end_array();
  out.field("parameters", summary.parameters).field("num_ranks", summary.ranks);
  out.field("transport", summary.transport);
  out.field("strategy", summary.strategy);
  write_facts(out, "configuration", configuration_of(run));
  write_facts(out, "environment", environment_of(run));
  write_curves(out, run);
  write_ranks(out, summary);
}

void write_run(JsonWriter& out, const ComparedRuns& all, size_t i) {
  const TrainingRun& run = all.runs[i];
  out.begin_object()
      .field("name", run.name)
      .field("folder", run.folder)
      .field("complete", run.state() == "finished")
      .field("state", run.has_ended() ? run.state() : "running")
      .field("rule", run.summary ? run.summary->rule : "")
      .field("mesh", run.summary ? run.summary->mesh : "")
      .field("steps", run.num_steps())
      .field("tokens", run.tokens())
      .field("seconds", run.seconds())
      .field("tokens_per_second", run.tokens_per_second())
      .field("memory_bytes", run.memory_bytes())
      .field("final_loss", run.final_loss())
      .field("eval_loss", run.eval_loss())
      .field("perplexity", perplexity_of(run.eval_loss()))
      .field("mfu", run.mfu())
      .field("skipped_steps", run.skipped_steps());
  write_spikes(out, run);
  out.field("digest", run.digest())
      .field("same_as_baseline",
             !run.digest().empty() &&
                 run.digest() == all.runs[all.baseline].digest())
      .field("weights", all.letters[i]);
  write_reached(out, all.reached[i]);
  write_story(out, run);
  out.end_object();
}

std::string write_runs(JsonWriter out, const ComparedRuns& all) {
  out.begin_object()
      .field("report", "runs")
      .field("baseline", all.runs[all.baseline].name)
      .field("baseline_run", all.baseline)
      .field("target_loss", all.target)
      .field("verdict", all.runs.size() > 1 ? verdict_of_several(all)
                                            : verdict_of_one(all.runs[0]))
      .field("remark", evaluations_remark(all.runs));
  out.member("runs").begin_array();
  for (size_t i = 0; i < all.runs.size(); ++i) write_run(out, all, i);
  return out.end_array().end_object().take();
}

}  // namespace

std::string runs_json(const ComparedRuns& all) {
  return write_runs(JsonWriter(2), all) + "\n";
}

std::string run_report(const ComparedRuns& all) {
  return make_page(write_runs(JsonWriter(), all), {"runs.js"});
}

}  // namespace canzona
