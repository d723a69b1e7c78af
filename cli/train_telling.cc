#include "cli/train_telling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/weight_source.h"
#include "canzona/measure/machine.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/models_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"
#include "canzona/report/zero_view.h"
#include "canzona/train/config_keys.h"
#include "cli/precision.h"
#include "cli/version.h"

namespace canzona::cli {
namespace {

struct MemoryKind {
  const char* name;
  int64_t bytes;
};
std::vector<MemoryKind> memory_of(const TrainJob& job, int32_t rank) {
  const auto r = static_cast<size_t>(rank);
  const RankMemory& memory = job.ranks[r].memory;
  return {{"parameters", memory.parameters.value()},
          {"gradients", memory.gradients.value()},
          {"masters", memory.master.value()},
          {"states", memory.states.value()},
          {"exchange", memory.buffers.value()},
          {"pools", memory.pools.value()},
          {"activations", job.activations_of[r]},
          {"saving", job.staging_of[r]}};
}

RunEnvironment environment() {
  const MachineInfo machine = machine_info();
  return {.host = host_name(),
          .cpu = machine.cpu,
          .cores = machine.num_cpus,
          .blas = machine.blas.library + " " + machine.blas.core,
          .version = kVersion,
          .commit = kCommit};
}

std::vector<RankSummary> rank_summaries(const TrainJob& job,
                                        const TrainResult& result) {
  double mean = 0;
  for (const RankCost& rank : job.ranks)
    mean += rank.transform_seconds_mean / static_cast<double>(job.ranks.size());
  const auto per_step = [&](int64_t bytes) {
    return bytes / std::max<int64_t>(result.steps_here, 1);
  };
  std::vector<RankSummary> all;
  for (size_t r = 0; r < result.times.size(); ++r) {
    const RankTimes& times = result.times[r];
    const RankCost& cost = job.ranks[r];
    const SentBytes& sent = result.sent[r];
    all.push_back({.rank = static_cast<int32_t>(r),
                   .forward_backward_seconds = times.forward_backward,
                   .optimizer_seconds = times.optimizer,
                   .waited_seconds = times.waited,
                   .comm_busy_seconds = times.links_busy,
                   .other_seconds = times.other,
                   .predicted_bytes = job.bytes_of(static_cast<int32_t>(r)),
                   .reserved_bytes = result.memory_bytes[r],
                   .owned_matrices = cost.num_matrices,
                   .load = mean > 0 ? cost.transform_seconds_mean / mean : 0,
                   .fast_bytes_per_step = per_step(sent.all - sent.slow),
                   .slow_bytes_per_step = per_step(sent.slow)});
  }
  return all;
}

// Returns "" if experts are cut with the dense tensors.
std::string experts_text(const ZeroOptions& zero) {
  return zero.experts.z1 > 0 ? to_string(zero.experts) : "";
}

}  // namespace

std::string zero_line(const TrainJob& job) {
  if (job.is_plain()) return "";
  const ZeroOptions& zero = job.plan.options.zero;
  const WireBytes most = job.bytes_per_step();
  std::string text = cat("zero: ", to_string(zero.sizes), ", ",
                         to_string(job.settings.runtime.overlap));
  if (zero.experts.z1 > 0) text += cat(", experts ", to_string(zero.experts));
  if (zero.sizes.z3 > 1 || zero.experts.z3 > 1)
    text += cat(", ", counted_text(zero.prefetch, "module"), " ahead");
  if (job.chose_collectives || zero.reach != Reach::kDirect)
    text += cat(", ", collectives_text(job.plan));
  return text + cat("; a rank sends ", human_bytes(most.sent_intra),
                    " per step inside its node, ", human_bytes(most.sent_inter),
                    " to other nodes (predicted)");
}

Document memory_view(const TrainJob& job) {
  const int32_t rank = job.fullest_rank();
  const std::string heading = cat("<memory of rank ", rank);
  Listing rows;
  Members kinds;
  for (const MemoryKind& kind : memory_of(job, rank)) {
    kinds.push_back({kind.name, kind.bytes});
    if (kind.bytes > 0 || (kind.name != std::string_view("pools") &&
                           kind.name != std::string_view("saving")))
      rows.add({{"", heading, kind.name}, {"", ">", as_bytes(kind.bytes)}});
  }
  rows.add({{"", heading, "all"}, {"", ">", as_bytes(job.bytes_of(rank))}});
  Document out;
  out.table("", rows);
  if (const std::string zero = zero_line(job); !zero.empty())
    out.text(cat("\n  ", zero, "\n"));
  if (job.speed)
    out.text(
        cat("\n  predicted optimizer step: ", human_seconds(job.step_seconds()),
            "\n  ", speed_text(*job.speed), "\n"));
  out.set("memory_rank", rank).set("memory_bytes", job.bytes_of(rank));
  return out.set("memory", kinds);
}

RunSummary describe_run(const TrainConfig& config, const TrainJob& job,
                        const TokenSource& tokens,
                        const std::string& transport) {
  RunSummary summary;
  summary.state = "running";
  summary.pid = ::getpid();
  summary.started = utc_time();
  JsonWriter writer;
  write_config(writer, config);
  summary.config = parse_json(writer.text(), {.what = "the configuration"});
  summary.model = model_name(config);
  summary.parameters = job.num_parameters();
  summary.mesh = to_string(job.plan.mesh);
  summary.ranks = job.plan.mesh.world();
  summary.transport = transport;
  summary.rule = config.rule.name;
  const PrecisionChoice precision = precision_of(config);
  summary.precision = precision.precision;
  summary.precision_why = precision.why;
  summary.strategy = config.planner["strategy"];
  summary.plan_digest = job.plan.digest;
  summary.zero = to_string(job.plan.options.zero.sizes);
  summary.overlap = to_string(job.settings.runtime.overlap);
  summary.predicted_step_seconds = job.step_seconds();
  summary.flops_per_token = job.settings.flops_per_token;
  summary.product_flops_per_second = job.settings.product_flops_per_second;
  summary.data = tokens.describe();
  summary.data_digest = tokens.digest();
  summary.environment = environment();
  if (job.settings.initial != nullptr)
    summary.notes.push_back(
        cat("starts from the weights in ", job.settings.initial->path()));
  summary.notes.insert(summary.notes.end(), job.notes.begin(), job.notes.end());
  if (const std::string note = config_json_note(job); !note.empty())
    summary.notes.push_back(note);
  return summary;
}

RunSummary with_result(RunSummary summary, const TrainJob& job,
                       const TrainResult& result) {
  summary.state = result.diverged    ? "diverged"
                  : result.stop != 0 ? "stopped"
                                     : "finished";
  summary.interrupted = result.stopped || result.diverged;
  summary.steps = result.steps;
  summary.tokens = result.tokens;
  summary.seconds = result.seconds;
  summary.final_loss = result.final_loss;
  summary.eval_loss = result.eval_loss;
  summary.eval_sequences = result.eval_sequences;
  summary.skipped_steps = result.skipped_steps;
  summary.nonfinite_tensor = result.nonfinite_tensor;
  summary.nonfinite_rank = result.nonfinite_rank;
  summary.spikes = result.spikes.count;
  summary.spike_step = result.spikes.step;
  summary.spike_loss = result.spikes.loss;
  summary.spike_over = result.spikes.over;
  if (const std::string note = spikes_text(summary); !note.empty())
    summary.notes.push_back(note);
  summary.environment.gpu = result.device;
  summary.digest = result.digest;
  summary.state_digest = result.state_digest;
  summary.starts = result.starts;
  summary.start_step = result.start_step;
  summary.saves = result.saves;
  summary.saved_step = result.saved_step;
  summary.save_pause_seconds = result.save_pause_seconds;
  summary.save_failure = result.save_failure;
  summary.per_rank = rank_summaries(job, result);
  find_late_ranks(summary);
  return summary;
}

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
      model_name(config), ": ",
      counted_text(job.plan.model.num_layers, "layer"), ", ",
      human_count(job.num_parameters()), " parameters, ", config.rule.name,
      in_precision(config), " (", config.planner["strategy"], ") on ",
      to_string(job.plan.mesh), " (", config.origin("mesh"), "), ",
      counted_text(job.plan.mesh.world(), transport + " rank"),
      "\ndata: ", data, "; ", counted_text(config.steps, "step"), " of ",
      config.batch.global * config.model.length,
      " tokens\nmemory: ", human_bytes(job.most_bytes()),
      " per rank, including ", human_bytes(job.activations), " activations",
      staging_text(job), job.is_plain() ? "" : "\n", zero_line(job),
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
        ", or check the data (--set spike.stop=off continues after a spike)");
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
                  "; the run continues and will try to record later steps"));
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
                  "; the run continues and will try to save later steps"));
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
  if (metrics.clipped_heads.value_or(0) > 0 && (due || !has_clipped_)) {
    has_clipped_ = true;
    out_.note(cat("note: step ", metrics.step, ": QK-clip scaled ",
                  counted_text(*metrics.clipped_heads, "head"),
                  "; the largest logit was ",
                  fmt::format("{:.4g}", *metrics.largest_logit)));
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

Document dry_run_view(const TrainConfig& config, const TrainJob& job,
                      const TokenSource& tokens) {
  const Plan& plan = job.plan;
  const ZeroOptions& zero = plan.options.zero;
  const PrecisionChoice precision = precision_of(config);
  Document out = audit_view(job.speed ? priced(plan, *job.speed) : plan);
  out.text("\n").add(memory_view(job));
  out.text(cat(
      "  mesh: ", to_string(plan.mesh), " (", printable(config.origin("mesh")),
      ")\n  data: ", tokens.describe(), " (", tokens.size(),
      "), tokens per step: ", config.batch.global * config.model.length,
      "\n  sequences at once: ", config.batch.micro, " of ",
      config.model.length, " tokens (", printable(config.origin("batch.micro")),
      ")\n"));
  if (const std::string text = precision.text(); !text.empty())
    out.text(cat("  precision: ", text, "\n"));
  if (job.ranking)
    out.text("\n").add("ranking", zero_comparison_view(*job.ranking));
  out.set("model", plan.model.name).set("parameters", job.num_parameters());
  out.set("mesh", to_string(plan.mesh));
  out.set("mesh_from", config.origin("mesh")).set("data", tokens.describe());
  out.set("data_tokens", tokens.size()).set("rule", plan.rule);
  out.add(precision_members(precision))
      .set("strategy", config.planner["strategy"]);
  out.set("teams", teams_text(plan.options.teams));
  out.set("predicted_step_seconds", job.step_seconds());
  out.set("flops_per_second", job.speed ? job.speed->flops_per_second : 0);
  out.set("copy_bytes_per_second",
          job.speed ? job.speed->copy_bytes_per_second : 0);
  out.set("zero", to_string(zero.sizes));
  out.set("zero_experts", experts_text(zero)).set("prefetch", zero.prefetch);
  out.set("fast_bytes_per_step", job.bytes_per_step().sent_intra);
  out.set("slow_bytes_per_step", job.bytes_per_step().sent_inter);
  return out.set("config",
                 [&config](JsonWriter& to) { write_config(to, config); });
}

void tell_begin(const Telling& telling, const std::string& data,
                const std::string& transport) {
  const Output& out = telling.out;
  if (telling.job.ranking)
    out.note(print_text(zero_ranking_view(*telling.job.ranking), Ink()));
  out.note(head_line(telling.config, telling.job, data, transport));
  if (telling.folder == nullptr) return;
  for (const std::string& note : telling.begun.notes)
    out.note(cat("note: ", note));
  const std::optional<ProcessLaunch> launch = find_process_launch();
  if (launch && launch->kill_seconds >= 0 && launch->kill_seconds < kEnough)
    out.note(cat("note: when interrupted, mpirun gives its ranks ",
                 launch->kill_seconds,
                 " s to finish their step and write the weights; mpirun --mca "
                 "odls_base_sigkill_timeout ",
                 kEnough, " gives them ", kEnough));
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
  out.error(cat("the run diverged: ", why_diverged(summary, telling.config),
                hint.empty()
                    ? ""
                    : cat("; ", hint, ", --resume STEP from another step")));
}

}  // namespace canzona::cli
