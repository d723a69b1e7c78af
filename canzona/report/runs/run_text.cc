#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/runs/curves.h"
#include "canzona/report/runs/run.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"

namespace canzona {
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
  // Few runs have measured how fast products are.
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
  table.header({"run", "steps", "tokens", "time"});
  for (size_t i = 0; i < all.runs.size(); ++i) {
    const std::optional<Reached>& reached = all.reached[i];
    if (!reached) {
      table.row({name_of(all.runs[i]), "not reached", "", ""});
      continue;
    }
    table.row(
        {name_of(all.runs[i]),
         with_ratio(grouped(reached->steps), reached->steps_ratio),
         with_ratio(human_count(static_cast<double>(reached->tokens)),
                    reached->tokens_ratio),
         with_ratio(clock_text(reached->seconds), reached->seconds_ratio)});
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
  return cat("evaluation losses are of different texts, ", least, " to ", most,
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
  // The lowest is an eighth and not nothing.
  for (double& cell : cells)
    cell = span > 0 ? 0.125 + 0.875 * (cell - from) / span : 0.125;
  return strip(cells, 1);
}

std::string runs_text(const ComparedRuns& all, const Ink& ink) {
  const auto title = [&](const std::string& text) {
    return ink(Tone::kBold, text) + "\n";
  };
  std::string out = title(all.runs.size() > 1 ? "Runs" : "Run");
  out += runs_table(all, ink) + notes_text(all, ink);
  if (const std::string curves = curves_table(all, ink); !curves.empty())
    out += "\n" + title("Training loss over steps, smoothed") + curves;
  if (all.runs.size() < 2) return out;
  if (std::isfinite(all.target))
    out += "\n" +
           title(cat("Until the evaluation loss of ",
                     name_of(all.runs[all.baseline]), ", ",
                     loss_text(all.target))) +
           reached_table(all, ink);
  out += "\n" + title("Weights at the end") + weights_text(all);
  if (const std::string other = differences_table(all, ink); !other.empty())
    out += "\n" + title("Configurations differ in") + other;
  return out;
}

}  // namespace canzona
