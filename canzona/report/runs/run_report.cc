#include "canzona/report/runs/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/runs/run.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"

namespace canzona {
namespace {

constexpr size_t kMaxPoints = 480;
constexpr size_t kMaxDots = 120;

// Returns the loss before anything was learned.
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
    text += cat(" On held-out text it is ", loss_text(run.eval_loss()), ".");
  return text + ending_of(run);
}

// " and 0.57 × the time: 0:35 against 1:01"
std::string time_to_loss(const ComparedRuns& all, size_t run) {
  const Reached& reached = *all.reached[run];
  if (reached.seconds_ratio <= 0) return "";
  return cat(" and ", times_text(reached.seconds_ratio),
             " the time: ", clock_text(reached.seconds), " against ",
             clock_text(all.reached[all.baseline]->seconds));
}

std::string verdict_of_several(const ComparedRuns& all) {
  const TrainingRun& base = all.runs[all.baseline];
  size_t best = all.baseline;
  for (size_t i = 0; i < all.runs.size(); ++i)
    if (all.runs[i].eval_loss() < all.runs[best].eval_loss()) best = i;
  if (!std::isfinite(base.eval_loss()))
    return "The baseline has no evaluation loss to compare others with.";
  if (best == all.baseline)
    return cat("No run ends below the evaluation loss of ", base.name, ", ",
               loss_text(base.eval_loss()), ".");
  std::string text =
      cat(all.runs[best].name, " ends with the lowest evaluation loss, ",
          loss_text(all.runs[best].eval_loss()), " against ",
          loss_text(base.eval_loss()), " of ", base.name);
  if (all.reached[best] && all.reached[best]->steps_ratio > 0)
    text += cat(", and reaches that loss after ",
                times_text(all.reached[best]->steps_ratio), " the steps",
                time_to_loss(all, best));
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

// Writes spikes as the summary has them.
void write_spikes(JsonWriter& out, const TrainingRun& run) {
  const RunSummary none;
  const RunSummary& summary = run.summary ? *run.summary : none;
  out.field("spikes", summary.spikes)
      .field("spike_step", summary.spike_step)
      .field("spike_loss", summary.spike_loss)
      .field("spike_over", summary.spike_over);
}

// Six digits are more than a drawing can show.
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

// Thins the line to what can be seen; keeps its last point.
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

// Seconds are per step.
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

namespace {

constexpr size_t kCurveWidth = 48;

std::string mfu_text(double mfu) {
  return std::isfinite(mfu) ? fmt::format("{:.1f} %", 100 * mfu) : "–";
}

std::string name_of(const TrainingRun& run) { return printable(run.name, 60); }

std::string word_of(const TrainingRun& run, std::string RunSummary::*field) {
  if (!run.summary || ((*run.summary).*field).empty()) return "–";
  return printable((*run.summary).*field, 24);
}

std::string runs_table(const ComparedRuns& all, const Ink& ink) {
  // Only some runs measured the speed of products.
  const bool mfu = std::ranges::any_of(all.runs, [](const TrainingRun& run) {
    return std::isfinite(run.mfu());
  });
  std::vector<std::string> head = {
      "run",      "rule",       "mesh",      "steps",      "tokens", "time",
      "tokens/s", "train loss", "eval loss", "perplexity", "MFU"};
  if (!mfu) head.pop_back();
  Table table(mfu ? "~<<>>>>>>>>" : "~<<>>>>>>>");
  table.header(head);
  for (const TrainingRun& run : all.runs) {
    std::vector<std::string> row = {
        name_of(run),
        word_of(run, &RunSummary::rule),
        word_of(run, &RunSummary::mesh),
        grouped(run.num_steps()),
        human_count(static_cast<double>(run.tokens())),
        clock_text(run.seconds()),
        human_count(run.tokens_per_second()),
        loss_text(run.final_loss()),
        loss_text(run.eval_loss()),
        perplexity_text(run.eval_loss())};
    if (mfu) row.push_back(mfu_text(run.mfu()));
    table.row(row);
  }
  return table.text(ink);
}

std::string with_ratio(const std::string& amount, double ratio) {
  return ratio > 0 ? fmt::format("{} ({})", amount, times_text(ratio)) : amount;
}

std::string reached_table(const ComparedRuns& all, const Ink& ink) {
  Table table("~>>>");
  table.header({"run", "time", "steps", "tokens"});
  for (size_t i = 0; i < all.runs.size(); ++i) {
    const std::optional<Reached>& reached = all.reached[i];
    if (!reached) {
      table.row({name_of(all.runs[i]), "not reached", "", ""});
      continue;
    }
    table.row({name_of(all.runs[i]),
               with_ratio(clock_text(reached->seconds), reached->seconds_ratio),
               with_ratio(grouped(reached->steps), reached->steps_ratio),
               with_ratio(human_count(static_cast<double>(reached->tokens)),
                          reached->tokens_ratio)});
  }
  return table.text(ink);
}

std::string curves_table(const ComparedRuns& all, const Ink& ink) {
  Table table("~><>");
  for (const TrainingRun& run : all.runs) {
    const Points line = smoothed(points_of(run, loss_of));
    if (line.empty()) continue;
    std::vector<double> values;
    for (const Point& point : line) values.push_back(point.value);
    table.row({name_of(run), loss_text(values.front()),
               ink(Tone::kAccent, sparkline(values, kCurveWidth)),
               loss_text(values.back())});
  }
  return table.empty() ? "" : table.text(ink);
}

std::string differences_table(const ComparedRuns& all, const Ink& ink) {
  std::vector<Facts> facts;
  for (const TrainingRun& run : all.runs)
    facts.push_back(configuration_of(run));
  Table table("~~");
  for (const FactRow& row : side_by_side(facts)) {
    if (!row.differs) continue;
    std::vector<std::string> values;
    for (const std::string& value : row.values)
      values.push_back(value.empty() ? "–" : printable(value, 24));
    table.row({printable(row.name, 40), shorten(join(values, " | "), 50)});
  }
  return table.empty() ? "" : table.text(ink);
}

// "the same weights: muon, muon-2"
std::string weights_text(const ComparedRuns& all) {
  std::string out;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    std::vector<std::string> names;
    for (size_t i = 0; i < all.runs.size(); ++i)
      if (all.letters[i] == std::string(1, letter))
        names.push_back(name_of(all.runs[i]));
    if (names.size() > 1)
      out += "  " +
             wrap("bit-identical: " + join(names, ", "), kPageWidth - 4, 2) +
             "\n";
  }
  return out.empty() ? "  all differ\n" : out;
}

std::string notes_text(const ComparedRuns& all, const Ink& ink) {
  std::string out;
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kPageWidth - 4, 4) + "\n";
  };
  const auto add = [&](const TrainingRun& run, const std::string& note) {
    if (!note.empty()) line(cat(name_of(run), ": ", printable(note, 400)));
  };
  if (const std::string remark = evaluations_remark(all.runs); !remark.empty())
    line(remark);
  for (const TrainingRun& run : all.runs) {
    add(run, run.remark());
    add(run, skipped_remark(run));
    if (!run.summary) continue;
    for (const std::string& note : run.summary->notes) add(run, note);
  }
  return out.empty() ? out : ink(Tone::kFair, out);
}

}  // namespace

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "–";
}

std::string evaluations_remark(const std::vector<TrainingRun>& runs) {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const TrainingRun& run : runs)
    if (run.has_ended() && run.summary->eval_sequences > 0) {
      least = std::min(least, run.summary->eval_sequences);
      most = std::max(most, run.summary->eval_sequences);
    }
  if (least >= most) return "";
  return cat("evaluation losses are for different texts, ", least, " to ", most,
             " held-out sequences: compare runs that have the same number in "
             "eval.sequences");
}

std::string skipped_remark(const TrainingRun& run) {
  const auto last =
      std::find_if(run.steps.rbegin(), run.steps.rend(),
                   [](const StepMetrics& step) { return step.skipped; });
  if (last == run.steps.rend()) return "";
  return cat(run.skipped_steps(), " of ", counted(run.num_steps(), "step"),
             run.skipped_steps() == 1 ? " was" : " were",
             " skipped and changed nothing; in step ", last->step, " ",
             nonfinite_text(last->nonfinite_tensor, last->nonfinite_rank));
}

std::string times_text(double ratio) { return fmt::format("{:.2f} ×", ratio); }

std::string sparkline(std::span<const double> values, size_t width) {
  std::vector<double> cells;
  const size_t count = std::min(width, values.size());
  for (size_t i = 0; i < count; ++i)
    cells.push_back(
        values[i * (values.size() - 1) / std::max<size_t>(count - 1, 1)]);
  if (cells.empty()) return "";
  const auto [low, high] = std::minmax_element(cells.begin(), cells.end());
  const double from = *low, span = *high - *low;
  // The lowest value is drawn as an eighth: 0 would be a dot.
  for (double& cell : cells)
    cell = span > 0 ? 0.125 + 0.875 * (cell - from) / span : 0.125;
  return upright_bars(cells, 1);
}

std::string runs_text(const ComparedRuns& all, const Ink& ink) {
  const auto title = [&](const std::string& text) {
    return ink(Tone::kBold, text) + "\n";
  };
  std::string out = title(all.runs.size() > 1 ? "Runs" : "Run");
  out += runs_table(all, ink) + notes_text(all, ink);
  if (all.runs.size() > 1 && std::isfinite(all.target))
    out += "\n" +
           title(cat("To reach the evaluation loss of ",
                     name_of(all.runs[all.baseline]), ", ",
                     loss_text(all.target))) +
           reached_table(all, ink) + "  " +
           wrap(printable(verdict_of_several(all), 400), kPageWidth - 4, 2) +
           "\n";
  if (const std::string curves = curves_table(all, ink); !curves.empty())
    out += "\n" + title("Training loss over steps, smoothed") + curves;
  if (all.runs.size() < 2) return out;
  out += "\n" + title("Weights at the end") + weights_text(all);
  if (const std::string other = differences_table(all, ink); !other.empty())
    out += "\n" + title("Configurations differ in") + other;
  return out;
}

}  // namespace canzona
