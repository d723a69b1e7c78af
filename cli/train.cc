// `canzona train`: a language model, trained on several ranks.
#include <csignal>

#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/data/batches.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/machine.h"
#include "canzona/report/audit_view.h"
#include "canzona/report/compare_zero.h"
#include "canzona/report/train_lines.h"
#include "cli/config.h"
#include "cli/environment.h"
#include "cli/errors.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/train_job.h"
#include "cli/train_summary.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kTrainExamples =
    R"(Examples:
  canzona train                                   tiny, Muon, the built-in language
  canzona train --data book.txt --run runs/one    a text file, on all cores
  canzona train --data corpus/ --preset small --rule soap --mesh dp=2,tp=2 --run runs/soap
  canzona train --model Qwen3-0.6B/config.json --data book.txt --dry-run
  canzona train --init Qwen3-0.6B --data book.txt --run runs/tuned
  canzona train --config runs/one/summary.json --seed 2 --run runs/again
  canzona train --preset small --steps 600 --set rule.learning_rate=0.01 --dry-run
  canzona train --preset small --ranks 8 --set batch.global=64 --zero auto --memory-cap 2GB
  mpirun -n 4 canzona train --mesh dp=2,tp=2 --run runs/mpi
  canzona report runs/one runs/soap --html compare.html

Data is a text file, a folder of text files, Megatron's .bin/.idx, llm.c's .bin, or
"synthetic". The last 5 % are held out for evaluation.

Ctrl-C (or SIGTERM) ends the run after its step, with weights, summary and report; during the
last evaluation it ends that at once; the exit status is then 130 (or 143). A second one ends the process.
Steps whose gradient is not finite change nothing; ten in a row end the run with exit status 5.

A mesh is dp=D,tp=T,pp=P,ep=E: ranks of data, tensor, pipeline and expert parallelism.
Without --mesh and --ranks every core is a data-parallel rank, as far as the batch can
be dealt over them. The run does not depend on the mesh but for the last digits; with
one mesh, no strategy changes a bit.

canzona config show --preset small     every setting and where it comes from
)";

struct TrainFlags {
  ConfigArguments config;
  bool dry_run = false;
  bool overwrite = false;
  bool json = false;
  bool mfu = false;
  std::string deadline;
  std::string trace;
};

// A run with what it began with, and where it tells of itself.
struct Telling {
  const TrainConfig& config;
  const TrainJob& job;
  const RunSummary& begun;
  bool json;
  RunFolder* folder;  // null: none is asked for
  const Output& out;
};

// A run that has a folder goes on if nobody reads its lines any more.
void tell_result(const Output& out, const RunFolder* folder,
                 std::string_view text) {
  try {
    out.result(text);
  } catch (const ClosedPipe&) {
    if (folder == nullptr) throw;
  }
}

// Tells the user and the folder, if there is one, what rank 0 sees.
class Narrator : public TrainObserver {
 public:
  explicit Narrator(const Telling& telling)
      : telling_(telling), out_(telling.out), folder_(telling.folder) {}

  void on_step(const StepMetrics& metrics) override {
    const int64_t steps = telling_.job.settings.steps;
    if (folder_ != nullptr) folder_->add_step(metrics);
    if (out_.shows_progress())
      out_.progress(
          progress_line({metrics.step, steps, metrics.seconds, metrics.loss}));
    const bool due =
        metrics.step == 1 || metrics.step % telling_.config.log.every == 0;
    if (!due && metrics.step != steps && !metrics.skipped) return;
    say([&](const Ink& ink) { return step_line(metrics, steps, ink); });
  }
  void on_evaluating(int64_t done, int64_t all) override {
    if (out_.shows_progress())
      out_.progress(
          cat("evaluating: ", done, " of ", all, " held-out sequences"));
  }
  void on_evaluation(int64_t step, double loss) override {
    if (folder_ != nullptr) folder_->add_evaluation(step, loss);
    say([&](const Ink& ink) {
      return evaluation_line(step, loss, telling_.job.settings.steps, ink);
    });
  }
  void on_tensor(int32_t tensor, std::span<const float> whole) override {
    if (folder_ != nullptr) folder_->add_tensor(telling_.job, tensor, whole);
  }
  void on_weights() override {
    if (folder_ != nullptr) folder_->finish_weights(telling_.job);
  }
  void on_result(const TrainResult& so_far) override {
    if (folder_ == nullptr) return;
    folder_->write_summary(with_result(telling_.begun, telling_.job, so_far));
    out_.progress("");
    out_.note(cat("wrote ", folder_->path(), "/model.safetensors"));
  }

 private:
  // A line of text; to standard error where standard output is for JSON.
  template <class Line>
  void say(const Line& line) const {
    if (out_.shows_progress()) out_.progress("");
    if (telling_.json)
      out_.note(line(Ink()));
    else
      tell_result(out_, folder_, line(out_.ink()) + "\n");
  }

  const Telling& telling_;
  const Output& out_;
  RunFolder* folder_;
};

// Seconds in which most steps end and their weights are written.
constexpr int kEnough = 10;

// " in bf16 (auto: AMX)"
std::string in_precision(const TrainConfig& config) {
  const std::string text = precision_of(config).text();
  return text.empty() ? "" : " in " + text;
}

std::string head_line(const TrainConfig& config, const TrainJob& job,
                      const std::string& data, const std::string& transport) {
  return cat(model_name(config), ": ", job.plan.model.num_layers, " layers, ",
             human_count(job.num_parameters()), " parameters, ",
             config.rule.name, in_precision(config), " (", config.plan.strategy,
             ") on ", to_string(job.plan.mesh), " (", config.origin("mesh"),
             "), ", job.plan.mesh.world(), " ", transport,
             job.plan.mesh.world() == 1 ? " rank" : " ranks", "\ndata: ", data,
             "; ", config.steps, " steps of ",
             config.batch.global * config.model.length,
             " tokens\nmemory: ", human_bytes(job.most_bytes()),
             " a rank, of which ", human_bytes(job.activations), " activations",
             job.is_plain() ? "" : "\n", zero_line(job));
}

// Tokens are opened, counted and checked, though none is learned.
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

RankOptions rank_options(const TrainFlags& a, const TrainConfig& config,
                         const Mesh& mesh) {
  RankOptions options;
  options.transport = config.transport == "auto" ? "" : config.transport;
  options.num_ranks = mesh.world();
  options.links = !config.links.model.empty();
  options.communicator.ranks_per_node = ranks_per_node_of(config);
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  return options;
}

// The ranks, once they are known to compute in the same precision.
std::unique_ptr<Ranks> join_ranks(const TrainFlags& a,
                                  const TrainConfig& config, const Mesh& mesh) {
  auto ranks = make_ranks(rank_options(a, config, mesh));
  require_same_precision(*ranks, precision_of(config));
  return ranks;
}

// What a run learns from.
struct Data {
  explicit Data(const TrainConfig& config)
      : seed(static_cast<uint64_t>(config.seed)),
        tokens(open_tokens(config.data.path,
                           {.vocab = config.model.vocab, .seed = seed})),
        batches(*tokens, {.length = config.model.length,
                          .seed = seed,
                          .held_out = config.data.held_out}) {}

  uint64_t seed;
  std::unique_ptr<TokenSource> tokens;
  Batches batches;
};

// On all ranks of this process; the result is rank 0's.
TrainResult train_on(Ranks& ranks, const TrainJob& job, const Data& data,
                     TrainObserver& observer) {
  TrainResult result;
  ranks.runner()(job.link, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    TrainResult own = train(job.settings, job.plan, data.batches, world,
                            *engine, ranks.speaks() ? &observer : nullptr);
    if (world.rank() == 0) result = std::move(own);
  });
  return result;
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
  const int64_t before = telling.config.max_skipped - 1;
  if (summary.state == "diverged")
    out.error(
        cat("the run diverged: step ", summary.steps, " was skipped",
            before > 0 ? cat(" like the ", before, " before it") : "", ": ",
            nonfinite_text(summary.nonfinite_tensor, summary.nonfinite_rank),
            "; try a lower rule.learning_rate or adamw.learning_rate, a longer "
            "schedule.warmup, or a smaller clip (--max-skipped 0 never ends a "
            "run)"));
}

// What the user should know before the first step.
void tell_begin(const Telling& telling, const std::string& data,
                const std::string& transport) {
  const Output& out = telling.out;
  if (telling.job.ranking)
    out.note(zero_ranking_text(*telling.job.ranking, Ink()));
  out.note(head_line(telling.config, telling.job, data, transport));
  if (telling.folder == nullptr) return;
  for (const std::string& note : telling.begun.notes)
    out.note(cat("note: ", note));
  const std::optional<MpiLaunch> launch = find_mpi_launch();
  if (launch && launch->kill_seconds >= 0 && launch->kill_seconds < kEnough)
    out.note(cat("note: when it is ended, mpirun gives its ranks ",
                 launch->kill_seconds,
                 " s to end their step and write the weights; with mpirun "
                 "--mca odls_base_sigkill_timeout ",
                 kEnough, " they have ", kEnough));
}

// For standard error when the first signal comes; nothing with --quiet.
std::string on_signal(const Ranks& ranks, const Output& out) {
  if (!ranks.speaks() || out.is_quiet()) return "";
  return "ending after this step, with weights and summary; once more ends at "
         "once";
}

Outcome outcome_of(const TrainResult& result) {
  if (result.diverged) return Outcome::kDiverged;
  if (result.stop == SIGINT) return Outcome::kInterrupted;
  return result.stop != 0 ? Outcome::kTerminated : Outcome::kDone;
}

// Weights are in place when train_on() returns. What can fail comes after the
// summary, and other ranks are waited for last.
Outcome run_job(const TrainFlags& a, const TrainConfig& config, TrainJob& job,
                Ranks& ranks, const Output& out) {
  require_memory(job, ranks.num_here());
  const Data data(config);
  const std::string trace_path =
      a.trace.empty() ? "" : ranks.file_name(a.trace);
  if (!trace_path.empty()) check_late_file(trace_path, config.run);
  std::unique_ptr<RunFolder> folder;
  if (ranks.speaks() && !config.run.empty())
    folder = std::make_unique<RunFolder>(config.run, a.overwrite);
  Trace trace;
  if (!trace_path.empty()) job.settings.runtime.trace = &trace;
  const Interrupt interrupt(on_signal(ranks, out));
  job.settings.stop = &interrupt.signal();

  RunSummary begun;
  if (ranks.speaks())
    begun = describe_run(config, job, *data.tokens, ranks.transport());
  const Telling telling{config, job, begun, a.json, folder.get(), out};
  if (folder != nullptr) folder->write_summary(begun);
  if (ranks.speaks())
    tell_begin(telling, data.tokens->describe(), ranks.transport());
  Narrator narrator(telling);
  const TrainResult result = train_on(ranks, job, data, narrator);
  if (ranks.speaks()) tell_end(with_result(begun, job, result), telling);
  if (!trace_path.empty()) out.save_trace(trace_path, trace);
  ranks.finish();
  return outcome_of(result);
}

// Ranks are threads unless MPI was asked for or has started this process.
RankCounts rank_counts(const TrainConfig& config,
                       const std::optional<MpiLaunch>& launch) {
  return {.launched = launch ? launch->num_ranks : 0,
          .cores = launch || config.transport == "mpi" ? 1 : usable_cpus()};
}

// What measurements decided becomes part of the configuration, so that it can
// be repeated.
void settle_zero(const TrainJob& job, TrainConfig& config) {
  const ZeroOptions& zero = job.plan.options.zero;
  if (chooses_zero(config)) config.zero.sizes = to_string(zero.sizes);
  if (chooses_experts(config))
    config.zero.experts = zero.experts.z1 > 0 ? to_string(zero.experts) : "";
}

Outcome dry_run(const TrainFlags& a, const TrainConfig& config, TrainJob& job,
                const Output& out) {
  const Data data(config);
  if (!job.speed) predict_at(measure_speed_here(job.plan), job);
  show_plan(config, job, *data.tokens, out, a.json);
  return Outcome::kDone;
}

Outcome run(const TrainFlags& a, const Output& out) {
  TrainConfig config = read_config(a.config);
  const std::optional<MpiLaunch> launch = find_mpi_launch();
  const Mesh mesh = settle_mesh(config, rank_counts(config, launch));
  std::unique_ptr<Ranks> ranks;
  std::optional<MachineLimits> limits;
  if (chooses_zero(config) || chooses_experts(config)) {
    ranks = join_ranks(a, config, mesh);
    limits = measure_limits_on(*ranks);
  }
  TrainJob job = make_job(config, mesh, limits);
  settle_zero(job, config);
  if (!a.dry_run) {
    if (ranks == nullptr) ranks = join_ranks(a, config, mesh);
    if (a.mfu && !limits)
      set_product_rate(measure_product_rate_on(*ranks), job);
    return run_job(a, config, job, *ranks, out);
  }
  if (ranks != nullptr) ranks->finish();
  const bool is_first =
      !launch || launch->rank == 0 || config.transport == "thread";
  const bool speaks = ranks != nullptr ? ranks->speaks() : is_first;
  return speaks ? dry_run(a, config, job, out) : Outcome::kDone;
}

}  // namespace

Verb add_train(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "train", "train a language model with any rule, on any mesh of ranks");
  auto arguments = std::make_shared<TrainFlags>();
  add_config_arguments(*app, arguments->config);
  constexpr const char* kGroup = "This run";
  const auto flag = [&](const char* name, bool& value, const char* help) {
    app->add_flag(name, value, help)->group(kGroup);
  };
  const auto text = [&](const char* name, std::string& value, const char* label,
                        const char* help) {
    app->add_option(name, value, help)->option_text(label)->group(kGroup);
  };
  flag("--dry-run", arguments->dry_run,
       "show every tensor's rule, owner and cost, memory, mesh, data and a "
       "predicted step; train nothing");
  flag("--overwrite", arguments->overwrite,
       "replace the run that the folder of --run holds");
  flag("--json", arguments->json,
       "print the summary as one JSON object; steps go to standard error");
  flag("--mfu", arguments->mfu,
       "measure first how fast the ranks multiply, and tell which share of it "
       "the model's flops are (--zero auto measures it, too)");
  text("--deadline", arguments->deadline, "TIME",
       "of every collective; past it, exit status 4 [10min]");
  text("--trace", arguments->trace, "FILE",
       "write spans of all ranks, for ui.perfetto.dev");
  app->footer(kTrainExamples + std::string("\n") + train_presets_help());
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli
