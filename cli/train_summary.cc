#include "cli/train_summary.h"

#include <unistd.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/checkpoint/weight_source.h"
#include "canzona/measure/machine.h"
#include "canzona/report/bench/bench_text.h"
#include "canzona/report/compare_zero.h"
#include "canzona/report/models_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/train_lines.h"
#include "canzona/report/view_parts.h"
#include "canzona/report/zero_view.h"
#include "cli/environment.h"
#include "cli/precision.h"
#include "cli/run_folder.h"
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
                    " a step inside its node, ", human_bytes(most.sent_inter),
                    " to others (predicted)");
}

std::string memory_table(const TrainJob& job, const Ink& ink) {
  const int32_t rank = job.fullest_rank();
  Table table("<>");
  table.header({cat("memory of rank ", rank), ""});
  for (const MemoryKind& kind : memory_of(job, rank))
    if (kind.bytes > 0 || (kind.name != std::string_view("pools") &&
                           kind.name != std::string_view("saving")))
      table.row({kind.name, human_bytes(kind.bytes)});
  table.row({"all", human_bytes(job.bytes_of(rank))});
  const std::string zero = zero_line(job);
  return table.text(ink) + (zero.empty() ? "" : cat("\n  ", zero, "\n")) +
         (job.speed ? cat("\n  predicted optimizer step: ",
                          human_seconds(job.step_seconds()), "\n  ",
                          speed_text(*job.speed), "\n")
                    : "");
}

std::string dry_run_json(const TrainConfig& config, const TrainJob& job,
                         const TokenSource& tokens) {
  JsonWriter out(2);
  const int32_t rank = job.fullest_rank();
  const Plan plan = job.speed ? priced(job.plan, *job.speed) : job.plan;
  out.begin_object()
      .field("model", job.plan.model.name)
      .field("parameters", job.num_parameters())
      .field("mesh", to_string(job.plan.mesh))
      .field("mesh_from", config.origin("mesh"))
      .field("data", tokens.describe())
      .field("data_tokens", tokens.size())
      .field("rule", job.plan.rule);
  write_precision(out, precision_of(config));
  out.field("strategy", config.plan.strategy)
      .field("teams", teams_text(job.plan.options.teams))
      .field("predicted_step_seconds", job.step_seconds())
      .field("flops_per_second", job.speed ? job.speed->flops_per_second : 0)
      .field("copy_bytes_per_second",
             job.speed ? job.speed->copy_bytes_per_second : 0)
      .field("memory_rank", rank)
      .field("memory_bytes", job.bytes_of(rank))
      .field("zero", to_string(job.plan.options.zero.sizes))
      .field("zero_experts", experts_text(job.plan.options.zero))
      .field("prefetch", job.plan.options.zero.prefetch)
      .field("fast_bytes_per_step", job.bytes_per_step().sent_intra)
      .field("slow_bytes_per_step", job.bytes_per_step().sent_inter);
  out.member("memory").begin_object();
  for (const MemoryKind& kind : memory_of(job, rank))
    out.field(kind.name, kind.bytes);
  out.end_object();
  if (job.ranking) write_zero_comparison(out.member("ranking"), *job.ranking);
  out.member("audit");
  write_audit(out, plan);
  out.member("config");
  write_config(out, config);
  return out.end_object().take() + "\n";
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
  summary.strategy = config.plan.strategy;
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

}  // namespace canzona::cli
