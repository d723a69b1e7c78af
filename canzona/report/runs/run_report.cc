#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/html.h"
#include "canzona/report/numbers.h"
#include "canzona/report/runs/run.h"
#include "canzona/report/runs/run_sections.h"
#include "canzona/report/train_lines.h"

namespace canzona {

// Runs side by side.
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

// The frame of the report on runs: its headline, what was asked, how to read
// it.
namespace {

// The loss before anything was learned.
double first_loss(const TrainingRun& run) {
  for (const StepMetrics& step : run.steps)
    if (std::isfinite(step.loss)) return step.loss;
  return std::nan("");
}

std::string asked_text(const TrainingRun& run) {
  if (!run.summary) return run.remark();
  const RunSummary& s = *run.summary;
  std::vector<std::string> words;
  if (s.parameters > 0)
    words.push_back(human_count(static_cast<double>(s.parameters)) +
                    " parameters");
  words.push_back(counted(s.ranks, "rank") +
                  (s.mesh.empty() ? "" : " on " + s.mesh));
  if (!s.transport.empty()) words.push_back("transport " + s.transport);
  if (!s.rule.empty()) words.push_back("rule " + s.rule);
  if (!s.strategy.empty()) words.push_back("strategy " + s.strategy);
  return join(words, " · ");
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

std::string verdict_of_several(const RunView& view) {
  size_t best = view.baseline;
  for (size_t i = 0; i < view.runs.size(); ++i)
    if (view.runs[i].eval_loss() < view.runs[best].eval_loss()) best = i;
  if (!std::isfinite(view.base().eval_loss()))
    return "The baseline has no evaluation loss to measure others by.";
  if (best == view.baseline)
    return cat("No run ends below the evaluation loss of ", view.base().name,
               ", ", loss_text(view.base().eval_loss()), ".");
  const ComparedRuns all = compare_runs(view.runs, view.baseline);
  std::string text =
      cat(view.runs[best].name, " ends with the lowest evaluation loss, ",
          loss_text(view.runs[best].eval_loss()), " against ",
          loss_text(view.base().eval_loss()), " of ", view.base().name);
  if (all.reached[best] && all.reached[best]->steps_ratio > 0)
    text += cat(", and is there after ",
                times_text(all.reached[best]->steps_ratio), " the steps");
  return text + ".";
}

std::vector<std::string> speed_lines(const TrainingRun& run) {
  std::vector<std::string> lines = {human_count(run.tokens_per_second()) +
                                    " tokens/s"};
  if (std::isfinite(run.mfu()))
    lines.push_back(cat("MFU ", mfu_text(run.mfu()), " of measured products"));
  return lines;
}

void put_tiles(Html& out, const TrainingRun& run) {
  out.add("<div class=\"tiles\">\n");
  put_tile(out, "Evaluation loss", loss_text(run.eval_loss()), "",
           {"on the text held back",
            cat("perplexity ", perplexity_text(run.eval_loss()))});
  put_tile(out, "Training loss", loss_text(run.final_loss()), "",
           {cat("from ", loss_text(first_loss(run)))});
  put_tile(out, "Steps", grouped(run.num_steps()), "",
           {human_count(static_cast<double>(run.tokens())) + " tokens"});
  put_tile(out, "Time", clock_text(run.seconds()), "", speed_lines(run));
  put_tile(out, "Memory per rank", human_bytes(run.memory_bytes()), "at most",
           {});
  out.add("</div>\n");
}

void put_navigation(Html& out, const std::string& body) {
  constexpr std::pair<const char*, const char*> kPlaces[] = {
      {"runs", "Runs"},
      {"loss", "Loss"},
      {"optimization", "Optimization"},
      {"time", "Time"},
      {"memory", "Memory"},
      {"plan", "Plan"},
      {"configuration", "Configuration"},
      {"environment", "Environment"},
      {"words", "How to read it"}};
  out.add("<nav>");
  for (const auto& [id, name] : kPlaces)
    if (body.find(cat("<section id=\"", id, "\"")) != std::string::npos)
      out.put("<a href=\"#{}\">{}</a>", id, name);
  out.add("</nav>\n");
}

void put_fact_table(Html& out, const RunView& view,
                    const std::vector<FactRow>& rows) {
  out.add("<div class=\"scroll\"><table><thead><tr><th></th>");
  for (const TrainingRun& run : view.runs) out.put("<th>{}</th>", run.name);
  out.add("</tr></thead><tbody>\n");
  for (const FactRow& row : rows) {
    out.put("<tr{}><th>{}</th>",
            Markup{row.differs ? " class=\"differs\"" : ""}, row.name);
    for (const std::string& value : row.values)
      out.put("<td class=\"name\">{}</td>", value);
    out.add("</tr>\n");
  }
  out.add("</tbody></table></div>\n");
}

void put_facts(Html& out, const RunView& view,
               Facts (*facts_of)(const TrainingRun&)) {
  if (!view.several()) {
    out.add("<dl>\n");
    for (const auto& [name, value] : facts_of(view.first()))
      put_fact(out, name, value);
    out.add("</dl>\n");
    return;
  }
  std::vector<Facts> facts;
  for (const TrainingRun& run : view.runs) facts.push_back(facts_of(run));
  std::vector<FactRow> rows = side_by_side(facts);
  std::stable_partition(rows.begin(), rows.end(),
                        [](const FactRow& row) { return row.differs; });
  put_fact_table(out, view, rows);
  out.add("<p class=\"note\">What differs comes first and is marked.</p>\n");
}

bool any_fact(const RunView& view, Facts (*facts_of)(const TrainingRun&)) {
  return std::any_of(
      view.runs.begin(), view.runs.end(),
      [&](const TrainingRun& run) { return !facts_of(run).empty(); });
}

std::string page_title(const RunView& view) {
  if (!view.several()) return view.first().name;
  return cat(view.first().name, " and ",
             counted(static_cast<int64_t>(view.runs.size()) - 1, "other run"));
}

}  // namespace

void add_run_headline(Html& out, const RunView& view) {
  const TrainingRun& run = view.first();
  if (view.several()) {
    out.put("<header><p class=\"kind\">Canzona runs</p><h1>{}</h1>",
            page_title(view));
    out.put("<p class=\"asked\">measured against <b>{}</b></p>",
            view.base().name);
    out.put("<p class=\"verdict\">{}</p></header>\n", verdict_of_several(view));
    return;
  }
  out.put("<header><p class=\"kind\">Canzona run</p><h1>{}</h1>", run.name);
  out.put("<p class=\"asked\">{}</p><p class=\"verdict\">{}</p></header>\n",
          asked_text(run), verdict_of_one(run));
  put_tiles(out, run);
}

void add_configuration(Html& out, const RunView& view) {
  if (!any_fact(view, configuration_of)) return;
  begin_section(out, "configuration", "Configuration");
  put_facts(out, view, configuration_of);
  end_section(out);
}

void add_environment(Html& out, const RunView& view) {
  if (!any_fact(view, environment_of)) return;
  begin_section(out, "environment", "What ran, and where");
  put_facts(out, view, environment_of);
  end_section(out);
}

void add_run_words(Html& out) {
  begin_section(out, "words", "How to read it");
  out.add(
      "<dl class=\"words\">"
      "<div><dt>Training loss</dt><dd>Cross entropy per token, in nats, of the "
      "batch of a step, before the step.</dd></div>"
      "<div><dt>Evaluation loss</dt><dd>The same on text from the last 5 % of "
      "the data, which no step trains on; perplexity is e to it.</dd></div>"
      "<div><dt>MFU</dt><dd>The flops of the model’s forward and backward over "
      "what the ranks reach in products alone, measured before the run; only "
      "runs that measured it have one.</dd></div>"
      "<div><dt>Hidden</dt><dd>The share of the time links were busy in which "
      "compute went on and did not wait.</dd></div>"
      "<div><dt>Weights</dt><dd>Compared by their digest: equal names, "
      "positions and bits, whatever the mesh.</dd></div></dl>\n");
  end_section(out);
}

std::string run_report(const RunView& view) {
  if (view.runs.empty()) throw UsageError("report: there is no run to show");
  const Page page{.title = page_title(view),
                  .footer =
                      "Made by Canzona from what the runs recorded; "
                      "opens offline.",
                  .script = html_hint_script(),
                  .style = run_style()};
  Html body;
  add_run_table(body, view);
  add_losses(body, view);
  add_optimization(body, view);
  add_times(body, view);
  add_run_memory(body, view);
  add_run_plan(body, view);
  add_configuration(body, view);
  add_environment(body, view);
  add_run_words(body);
  Html out;
  begin_page(out, page);
  add_run_headline(out, view);
  put_navigation(out, body.text());
  out.add("<main>\n");
  out.add(body.text());
  end_page(out, page);
  return out.take();
}

}  // namespace canzona
