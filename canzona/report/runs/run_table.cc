// Runs side by side.

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/runs/comparison.h"
#include "canzona/report/runs/run_sections.h"
#include "canzona/report/train_lines.h"

namespace canzona {
namespace {

constexpr const char* kHead =
    "<div class=\"scroll\"><table class=\"wide\"><thead>"
    "<tr><th rowspan=\"2\">run</th>"
    "<th class=\"n\" colspan=\"4\">whole run</th>"
    "<th class=\"n\" colspan=\"3\">loss at the end</th>"
    "<th class=\"n\" colspan=\"3\">until the baseline’s loss</th>"
    "<th rowspan=\"2\">weights</th></tr>\n<tr><th class=\"n\">steps</th>"
    "<th class=\"n\">tokens</th><th class=\"n\">time</th>"
    "<th class=\"n\">tokens/s</th><th class=\"n\">training</th>"
    "<th class=\"n\">evaluation</th><th class=\"n\">perplexity</th>"
    "<th class=\"n\">steps</th>"
    "<th class=\"n\">tokens</th><th class=\"n\">time</th></tr></thead>"
    "<tbody>\n";

void put_reached(Html& out, const std::string& amount, double ratio) {
  out.put("<td class=\"n\">{}", amount);
  if (ratio > 0) out.put("<small> {}</small>", times_text(ratio));
  out.add("</td>");
}

void put_reached_cells(Html& out, const std::optional<Reached>& reached) {
  if (!reached) {
    out.add("<td class=\"n\" colspan=\"3\">not reached</td>");
    return;
  }
  put_reached(out, grouped(reached->steps), reached->steps_ratio);
  put_reached(out, human_count(static_cast<double>(reached->tokens)),
              reached->tokens_ratio);
  put_reached(out, clock_text(reached->seconds), reached->seconds_ratio);
}

// Text is compared, so that figures that look equal are marked alike.
std::string best_loss(const RunView& view) {
  double best = HUGE_VAL;
  for (const TrainingRun& run : view.runs)
    if (run.eval_loss() < best) best = run.eval_loss();
  return loss_text(best);
}

// "muon · dp=2,tp=2 · baseline"
std::vector<std::string> remarks_on(const ComparedRuns& all, size_t i) {
  const TrainingRun& run = all.runs[i];
  std::vector<std::string> words;
  if (run.summary && !run.summary->rule.empty())
    words.push_back(run.summary->rule);
  if (run.summary && !run.summary->mesh.empty())
    words.push_back(run.summary->mesh);
  if (!run.has_ended())
    words.emplace_back("did not finish");
  else if (run.state() != "finished")
    words.push_back(run.state());
  if (i == all.baseline) words.emplace_back("baseline");
  return words;
}

void put_row(Html& out, const ComparedRuns& all, size_t i,
             const std::string& best) {
  const TrainingRun& run = all.runs[i];
  out.put(
      "<tr><th class=\"who\"><i class=\"swatch "
      "{}\"></i>{}<small>{}</small></th>",
      color_of(i), run.name, join(remarks_on(all, i), " · "));
  out.put("<td class=\"n\">{}</td><td class=\"n\">{}</td>",
          grouped(run.num_steps()),
          human_count(static_cast<double>(run.tokens())));
  out.put("<td class=\"n\">{}</td><td class=\"n\">{}</td>",
          clock_text(run.seconds()), human_count(run.tokens_per_second()));
  const std::string eval = loss_text(run.eval_loss());
  out.put("<td class=\"n\">{}</td><td class=\"n{}\">{}</td>",
          loss_text(run.final_loss()), eval == best ? " best" : "", eval);
  out.put("<td class=\"n\">{}</td>", perplexity_text(run.eval_loss()));
  put_reached_cells(out, all.reached[i]);
  out.put("<td title=\"{}\">{}</td></tr>\n", run.digest(),
          all.letters[i].empty() ? "–" : all.letters[i]);
}

}  // namespace

std::string color_of(size_t run) { return cat("s", run % 6); }

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "–";
}

std::string mfu_text(double mfu) {
  return std::isfinite(mfu) ? fmt::format("{:.1f} %", 100 * mfu) : "–";
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

void add_run_table(Html& out, const RunView& view) {
  if (!view.several()) return;
  const ComparedRuns all = compare_runs(view.runs, view.baseline);
  begin_section(out, "runs", "Runs");
  out.add(kHead);
  const std::string best = best_loss(view);
  for (size_t i = 0; i < view.runs.size(); ++i) put_row(out, all, i, best);
  out.put(
      "</tbody></table></div><p class=\"note\">The baseline is {}, its "
      "evaluation loss {}. A run has reached it at its first evaluation that "
      "is not above; × is the multiple of what the baseline took. Runs with "
      "the same letter ended with the same weights, bit by bit.</p>",
      view.base().name, loss_text(all.target));
  if (const std::string remark = evaluations_remark(view.runs); !remark.empty())
    out.put("<p class=\"note\">Note: {}.</p>", remark);
  end_section(out);
}

}  // namespace canzona
