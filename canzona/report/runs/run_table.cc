// Runs side by side.

#include <cmath>

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
    "<th class=\"n\" colspan=\"2\">loss at the end</th>"
    "<th class=\"n\" colspan=\"3\">until the baseline’s loss</th>"
    "<th rowspan=\"2\">weights</th></tr>\n<tr><th class=\"n\">steps</th>"
    "<th class=\"n\">tokens</th><th class=\"n\">time</th>"
    "<th class=\"n\">tokens/s</th><th class=\"n\">training</th>"
    "<th class=\"n\">evaluation</th><th class=\"n\">steps</th>"
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
  if (!run.summary) words.emplace_back("no summary");
  if (run.summary && run.summary->interrupted)
    words.emplace_back("interrupted");
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
  put_reached_cells(out, all.reached[i]);
  out.put("<td title=\"{}\">{}</td></tr>\n", run.digest(),
          all.letters[i].empty() ? "–" : all.letters[i]);
}

}  // namespace

std::string color_of(size_t run) { return cat("s", run % 6); }

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "–";
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
  end_section(out);
}

}  // namespace canzona
