#include "cli/train_telling.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/report/compare_zero.h"
#include "canzona/report/models_view.h"
#include "canzona/report/team_view.h"
#include "canzona/report/train_lines.h"
#include "canzona/train/config_keys.h"
#include "cli/config.h"
#include "cli/precision.h"
#include "cli/train_resume.h"

namespace canzona::cli {
namespace {

// A run that has a folder continues even if nobody reads its output.
void tell_result(const Output& out, const RunFolder* folder,
                 std::string_view text) {
  try {
    out.result(text);
  } catch (const ClosedPipe&) {
    if (folder == nullptr) throw;
  }
}

// "resumed from runs/one/ckpt/step_00000100 (step 100 of 200, start 2)"
std::string resumed_line(const LoadedState& loaded, const RunState& state,
                         const TrainConfig& config) {
  return cat("resumed from ", printable(loaded.path), ": step ", state.step,
             " of ", config.steps, " is done, start ", state.starts,
             " of this run");
}

// The seconds in which most steps end and their weights are written.
constexpr int kEnough = 10;

// " in bf16 (auto: AMX)"
std::string in_precision(const TrainConfig& config) {
  const std::string text = precision_of(config).text();
  return text.empty() ? "" : " in " + text;
}

// ", 48 MB to save in the background"
std::string staging_text(const TrainJob& job) {
  const int64_t staging =
      job.staging_of[static_cast<size_t>(job.fullest_rank())];
  return staging == 0
             ? ""
             : cat(" and ", human_bytes(staging), " to save in the background");
}

std::string head_line(const TrainConfig& config, const TrainJob& job,
                      const std::string& data, const std::string& transport) {
  return cat(
      model_name(config), ": ", job.plan.model.num_layers, " layers, ",
      human_count(job.num_parameters()), " parameters, ", config.rule.name,
      in_precision(config), " (", config.plan.strategy, ") on ",
      to_string(job.plan.mesh), " (", config.origin("mesh"), "), ",
      job.plan.mesh.world(), " ", transport,
      job.plan.mesh.world() == 1 ? " rank" : " ranks", "\ndata: ", data, "; ",
      config.steps, " steps of ", config.batch.global * config.model.length,
      " tokens\nmemory: ", human_bytes(job.most_bytes()), " a rank, of which ",
      human_bytes(job.activations), " activations", staging_text(job),
      job.is_plain() ? "" : "\n", zero_line(job),
      may_have_teams(job.plan) ? "\nteams: " + describe_teams(job.plan) : "");
}

// "step 12 was skipped like the 9 before it: …; try …"
std::string why_diverged(const RunSummary& summary, const TrainConfig& config) {
  constexpr const char* kAdvice =
      "; try a lower rule.learning_rate or adamw.learning_rate, a longer "
      "schedule.warmup, or a smaller clip";
  if (summary.has_ended_by_spike())
    return cat(
        spike_text(summary.spike_step, summary.spike_loss, summary.spike_over),
        " (spike.factor ", number_text(config.spike.factor), ")", kAdvice,
        ", or look at the data (--set spike.stop=off goes on after a spike)");
  const int64_t before = config.max_skipped - 1;
  return cat("step ", summary.steps, " was skipped",
             before > 0 ? cat(" like the ", before, " before it") : "", ": ",
             nonfinite_text(summary.nonfinite_tensor, summary.nonfinite_rank),
             kAdvice, " (--max-skipped 0 never ends a run)");
}

}  // namespace

// A run is worth more than the record of a step, so it continues without it.
template <class Add>
void Narrator::record(int64_t step, const Add& add) {
  if (folder_ == nullptr) return;
  try {
    add();
  } catch (const StorageError& error) {
    if (num_unrecorded_++ > 0) return;
    first_unrecorded_ = step;
    why_unrecorded_ = error.what();
    out_.note(cat("note: step ", step,
                  " could not be recorded: ", printable(why_unrecorded_, 2000),
                  "; the run goes on, and later steps are tried again"));
  }
}

// Prints a line; to standard error if standard output is for JSON.
template <class Line>
void Narrator::say(const Line& line) const {
  if (out_.shows_progress()) out_.progress("");
  if (telling_.json)
    out_.note(line(Ink()));
  else
    tell_result(out_, folder_, line(out_.ink()) + "\n");
}

// A former run is left untouched until here.
void Narrator::on_begin() {
  if (folder_ == nullptr || !folder_->holds_former()) return;
  folder_->replace_former(checkpoint_bytes(telling_.job));
  folder_->write_tokenizer(telling_.tokenizer);
  folder_->write_summary(telling_.begun);
}

// Nothing has changed in the folder of a resumed run until now.
void Narrator::on_resumed(const LoadedState& loaded, const RunState& state) {
  has_resumed_ = true;
  for (const std::string& note : loaded.notes)
    out_.note(cat("note: ", printable(note, 2000)));
  out_.note(resumed_line(loaded, state, telling_.config));
  if (folder_ == nullptr) return;
  RunSummary running = telling_.begun;
  running.steps = running.start_step = state.step;
  running.tokens = state.tokens;
  running.seconds = state.seconds;
  running.starts = state.starts;
  folder_->replace_former(checkpoint_bytes(telling_.job));
  for (const std::string& note : folder_->go_on_after(state.step))
    out_.note(cat("note: ", printable(note, 2000)));
  folder_->write_tokenizer(telling_.tokenizer);
  folder_->write_summary(running);
}

bool Narrator::lacks_evaluation() const {
  return folder_ != nullptr && folder_->lacks_evaluation();
}

void Narrator::on_saved(const SavedStep& saved) {
  for (const std::string& note : saved.notes)
    out_.note(cat("note: ", printable(note, 2000)));
  if (!saved.failure.empty())
    out_.note(cat("note: step ", saved.step,
                  " could not be saved: ", printable(saved.failure, 2000),
                  "; the run goes on, and so do later saves"));
  else
    say([&](const Ink& ink) {
      return saved_line(
          {saved.step, saved.bytes, saved.seconds, saved.pause_seconds},
          telling_.job.settings.steps, ink);
    });
}

void Narrator::on_step(const StepMetrics& metrics) {
  const int64_t steps = telling_.job.settings.steps;
  record(metrics.step, [&] { folder_->add_step(metrics); });
  if (out_.shows_progress())
    out_.progress(
        progress_line({metrics.step, steps, metrics.seconds, metrics.loss}));
  const bool due = is_first_ || metrics.step % telling_.config.log.every == 0;
  is_first_ = false;
  if (metrics.spike_over) {
    if (out_.shows_progress()) out_.progress("");
    out_.note(cat(
        "note: ", spike_text(metrics.step, metrics.loss, *metrics.spike_over),
        " (spike.factor ", number_text(telling_.job.settings.spike_factor),
        ")"));
  }
  if (!due && metrics.step != steps && !metrics.skipped) return;
  say([&](const Ink& ink) { return step_line(metrics, steps, ink); });
}

void Narrator::on_evaluating(int64_t done, int64_t all) {
  if (out_.shows_progress())
    out_.progress(
        cat("evaluating: ", done, " of ", all, " held-out sequences"));
}

void Narrator::on_evaluation(int64_t step, double loss) {
  record(step, [&] { folder_->add_evaluation(step, loss); });
  say([&](const Ink& ink) {
    return evaluation_line(step, loss, telling_.job.settings.steps, ink);
  });
}

void Narrator::on_tensor(int32_t tensor, std::span<const float> whole) {
  if (folder_ != nullptr) folder_->add_tensor(telling_.job, tensor, whole);
}

void Narrator::on_weights() {
  if (folder_ != nullptr) folder_->finish_weights(telling_.job);
}

void Narrator::on_result(const TrainResult& so_far) {
  if (folder_ == nullptr) return;
  folder_->write_summary(summary_of(so_far));
  out_.progress("");
  out_.note(cat("wrote ", folder_->path(), "/model.safetensors"));
}

std::string Narrator::unrecorded() const {
  if (num_unrecorded_ == 0) return "";
  return cat(counted_text(num_unrecorded_, "record"),
             " of steps and evaluations, the first of step ", first_unrecorded_,
             ", could not be written: ", why_unrecorded_);
}

RunSummary Narrator::summary_of(const TrainResult& result) const {
  RunSummary summary = with_result(telling_.begun, telling_.job, result);
  if (num_unrecorded_ > 0) summary.notes.push_back(unrecorded());
  if (folder_ != nullptr) summary.weights_sha256 = folder_->weights_sha256();
  return summary;
}

void show_plan(const TrainConfig& config, const TrainJob& job,
               const TokenSource& tokens, const Output& out, bool json) {
  if (json) {
    out.result(dry_run_json(config, job, tokens));
    return;
  }
  const Plan& plan = job.plan;
  out.result(
      audit_text(job.speed ? priced(plan, *job.speed) : plan, out.ink()) +
      "\n" + memory_table(job, out.ink()) + "  mesh: " + to_string(plan.mesh) +
      " (" + config.origin("mesh") + ")\n  data: " + tokens.describe() + " (" +
      cat(tokens.size()) + "), of which a step takes " +
      cat(config.batch.global * config.model.length) + "\n");
  if (const std::string text = precision_of(config).text(); !text.empty())
    out.result(cat("  precision: ", text, "\n"));
  if (job.ranking)
    out.result("\n" + zero_comparison_text(*job.ranking, out.ink()));
}

void tell_begin(const Telling& telling, const std::string& data,
                const std::string& transport) {
  const Output& out = telling.out;
  if (telling.job.ranking)
    out.note(zero_ranking_text(*telling.job.ranking, Ink()));
  out.note(head_line(telling.config, telling.job, data, transport));
  if (telling.folder == nullptr) return;
  for (const std::string& note : telling.begun.notes)
    out.note(cat("note: ", note));
  const std::optional<ProcessLaunch> launch = find_process_launch();
  if (launch && launch->kill_seconds >= 0 && launch->kill_seconds < kEnough)
    out.note(cat("note: when it is ended, mpirun gives its ranks ",
                 launch->kill_seconds,
                 " s to end their step and write the weights; with mpirun "
                 "--mca odls_base_sigkill_timeout ",
                 kEnough, " they have ", kEnough));
}

void tell_end(const RunSummary& summary, const Telling& telling) {
  const Output& out = telling.out;
  RunFolder* folder = telling.folder;
  out.progress("");
  if (folder != nullptr) folder->finish(summary);
  if (telling.json)
    tell_result(out, folder, to_json(summary));
  else
    tell_result(
        out, folder,
        closing_lines(summary, folder != nullptr ? folder->report_path() : ""));
  if (summary.state != "diverged") return;
  const std::string hint = resume_hint(telling.config.run);
  out.error(
      cat("the run diverged: ", why_diverged(summary, telling.config),
          hint.empty() ? "" : cat("; ", hint, ", --resume STEP from another")));
}

}  // namespace canzona::cli
