#include "canzona/report/runs/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/train_lines.h"

namespace canzona::report {
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

Value reached_value(const std::optional<Reached>& reached) {
  if (!reached) return nullptr;
  return {{"steps", reached->steps},
          {"tokens", reached->tokens},
          {"seconds", reached->seconds},
          {"steps_ratio", reached->steps_ratio},
          {"tokens_ratio", reached->tokens_ratio},
          {"seconds_ratio", reached->seconds_ratio}};
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
  out.begin_object();
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
  out.begin_object().member("columns");
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

Value facts_value(const Facts& facts) {
  std::vector<std::array<std::string, 2>> out;
  for (const auto& [fact, value] : facts) out.push_back({fact, value});
  return out;
}

// Settings, remarks and the figures that the page draws.
void add_story(const TrainingRun& run, Row& out) {
  RunSummary none;
  none.ranks = 0;
  const RunSummary& summary = run.summary ? *run.summary : none;
  std::vector<std::string> odd;
  for (const std::string& text : {skipped_remark(run), spikes_text(summary)})
    if (!text.empty()) odd.push_back(text);
  out.set("spikes", summary.spikes).set("spike_step", summary.spike_step);
  out.set("spike_loss", summary.spike_loss);
  out.set("spike_over", summary.spike_over).set("first_loss", first_loss(run));
  out.set("remark", run.remark()).set("late", late_text(summary));
  out.set("odd_steps", odd).set("parameters", summary.parameters);
  out.set("num_ranks", summary.ranks).set("transport", summary.transport);
  out.set("strategy", summary.strategy);
  out.set("configuration", facts_value(configuration_of(run)));
  out.set("environment", facts_value(environment_of(run)));
  out.set("curves", [&run](JsonWriter& to) { write_curves(to, run); });
  out.set("ranks", [&run](JsonWriter& to) {
    write_ranks(to, run.summary ? *run.summary : RunSummary());
  });
}

constexpr size_t kCurveWidth = 48;

std::string name_of(const TrainingRun& run) { return printable(run.name, 60); }

Field word_field(const char* key, const char* heading, const TrainingRun& run,
                 std::string RunSummary::*field) {
  const std::string word = run.summary ? (*run.summary).*field : "";
  return {key, heading, word, word.empty() ? "–" : printable(word, 24)};
}

Field loss_field(const char* key, const char* heading, double loss) {
  return {key, heading, loss, loss_text(loss)};
}

Field count_field(const char* key, const char* heading, double count) {
  return {key, heading, count, human_count(count)};
}

Listing listing_of(const ComparedRuns& all) {
  // Only some runs measured the speed of products.
  const bool mfu = std::ranges::any_of(all.runs, [](const TrainingRun& run) {
    return std::isfinite(run.mfu());
  });
  Listing out;
  for (size_t i = 0; i < all.runs.size(); ++i) {
    const TrainingRun& run = all.runs[i];
    Row& row = out.add(
        {{"name", "~run", run.name, name_of(run)},
         word_field("rule", "<rule", run, &RunSummary::rule),
         word_field("mesh", "<mesh", run, &RunSummary::mesh),
         {"steps", ">steps", as_count(run.num_steps())},
         {"tokens", ">tokens", run.tokens(),
          human_count(static_cast<double>(run.tokens()))},
         {"seconds", ">time", run.seconds(), clock_text(run.seconds())},
         count_field("tokens_per_second", ">tokens/s", run.tokens_per_second()),
         loss_field("final_loss", ">train loss", run.final_loss()),
         loss_field("eval_loss", ">eval loss", run.eval_loss()),
         {"perplexity", ">perplexity", perplexity_of(run.eval_loss()),
          perplexity_text(run.eval_loss())},
         {"mfu", mfu ? ">MFU" : "", run.mfu(),
          std::isfinite(run.mfu()) ? fmt::format("{:.1f} %", 100 * run.mfu())
                                   : "–"}});
    row.set("folder", run.folder).set("complete", run.state() == "finished");
    row.set("state", run.has_ended() ? run.state() : "running");
    row.set("memory_bytes", run.memory_bytes());
    row.set("skipped_steps", run.skipped_steps()).set("digest", run.digest());
    row.set("same_as_baseline",
            !run.digest().empty() &&
                run.digest() == all.runs[all.baseline].digest());
    row.set("weights", all.letters[i]);
    row.set("reached", reached_value(all.reached[i]));
    add_story(run, row);
  }
  return out;
}

std::string with_ratio(const std::string& amount, double ratio) {
  return ratio > 0 ? cat(amount, " (", times_text(ratio), ")") : amount;
}

Listing reached_listing(const ComparedRuns& all) {
  Listing out;
  for (size_t i = 0; i < all.runs.size(); ++i) {
    const Reached none, &reached = all.reached[i] ? *all.reached[i] : none;
    const auto cell = [&](const std::string& amount, double ratio) {
      return all.reached[i] ? with_ratio(amount, ratio) : "";
    };
    out.add({{"", "~run", name_of(all.runs[i])},
             {"", ">time",
              all.reached[i]
                  ? cell(clock_text(reached.seconds), reached.seconds_ratio)
                  : "not reached"},
             {"", ">steps", cell(grouped(reached.steps), reached.steps_ratio)},
             {"", ">tokens",
              cell(human_count(static_cast<double>(reached.tokens)),
                   reached.tokens_ratio)}});
  }
  return out;
}

Listing curves_listing(const ComparedRuns& all) {
  Listing out;
  for (const TrainingRun& run : all.runs) {
    const Points line = smoothed(points_of(run, loss_of));
    if (line.empty()) continue;
    std::vector<double> values;
    for (const Point& point : line) values.push_back(point.value);
    out.add(
        {{"", "~", name_of(run)},
         {"", ">", loss_text(values.front())},
         {"", "<", "", toned(Tone::kAccent, sparkline(values, kCurveWidth))},
         {"", ">", loss_text(values.back())}});
  }
  return out;
}

Listing differences_listing(const ComparedRuns& all) {
  std::vector<Facts> facts;
  for (const TrainingRun& run : all.runs)
    facts.push_back(configuration_of(run));
  Listing out;
  for (const FactRow& row : side_by_side(facts)) {
    if (!row.differs) continue;
    std::vector<std::string> values;
    for (const std::string& value : row.values)
      values.push_back(value.empty() ? "–" : printable(value, 24));
    out.add({{"", "~", printable(row.name, 40)},
             {"", "~", shorten(join(values, " | "), 50)}});
  }
  return out;
}

// "the same weights: muon, muon-2"
void add_weights(const ComparedRuns& all, Document& out) {
  bool any = false;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    std::vector<std::string> names;
    for (size_t i = 0; i < all.runs.size(); ++i)
      if (all.letters[i] == std::string(1, letter))
        names.push_back(name_of(all.runs[i]));
    if (names.size() < 2) continue;
    out.line("bit-identical: " + join(names, ", "));
    any = true;
  }
  if (!any) out.line("all differ");
}

void add_notes(const ComparedRuns& all, Document& out) {
  std::string notes;
  const auto line = [&](const std::string& text) {
    notes += "  " + wrap(text, kPageWidth - 4, 4) + "\n";
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
  out.text(toned(Tone::kFair, notes));
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

Document runs_view(const ComparedRuns& all) {
  const bool several = all.runs.size() > 1;
  const std::string verdict =
      several ? verdict_of_several(all) : verdict_of_one(all.runs[0]);
  const TrainingRun& base = all.runs[all.baseline];
  Document out;
  out.set("report", "runs").set("baseline", base.name);
  out.set("baseline_run", all.baseline).set("target_loss", all.target);
  out.set("verdict", verdict).set("remark", evaluations_remark(all.runs));
  out.heading(several ? "Runs" : "Run").table("runs", listing_of(all));
  add_notes(all, out);
  if (several && std::isfinite(all.target))
    out.title(cat("To reach the evaluation loss of ", name_of(base), ", ",
                  loss_text(all.target)))
        .table("", reached_listing(all))
        .line(printable(verdict, 400));
  if (const Listing curves = curves_listing(all); !curves.empty())
    out.title("Training loss over steps, smoothed").table("", curves);
  if (!several) return out;
  out.title("Weights at the end");
  add_weights(all, out);
  if (const Listing other = differences_listing(all); !other.empty())
    out.title("Configurations differ in").table("", other);
  return out;
}

std::string run_report(const ComparedRuns& all) {
  return make_page(to_json(runs_view(all), 0), {"runs.js"});
}

}  // namespace canzona::report
