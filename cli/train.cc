// `canzona train`: a language model, trained on several ranks.
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/data/batches.h"
#include "canzona/linalg/engine.h"
#include "canzona/report/audit_view.h"
#include "canzona/report/train_lines.h"
#include "cli/config_arguments.h"
#include "cli/interrupt.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/train_job.h"
#include "cli/train_summary.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kExamples =
    R"(Examples:
  canzona train                                   tiny, Muon, the built-in language
  canzona train --data book.txt --ranks 4 --mesh dp=2,tp=2 --run runs/one
  canzona train --data corpus/ --preset small --rule soap --run runs/soap
  canzona train --preset small --steps 600 --set rule.learning_rate=0.01 --dry-run
  canzona train --preset small --ranks 8 --set batch.global=64 --zero auto --memory-cap 2GB
  mpirun -n 4 canzona train --mesh dp=2,tp=2 --run runs/mpi
  canzona report runs/one runs/soap --html compare.html

Data is a text file, a folder of text files, Megatron's .bin/.idx, llm.c's .bin, or
"synthetic". The last 5 % are held out for evaluation. Ctrl-C ends after the step.

A mesh is dp=D,tp=T,pp=P,ep=E; it has as many ranks as --ranks says. The run does not
depend on it but for the last digits; with one mesh, no strategy changes a bit.

canzona config show --preset small     every setting and where it comes from
)";

struct Arguments {
  ConfigArguments config;
  bool dry_run = false;
  bool overwrite = false;
  bool json = false;
  std::string deadline;
  std::string trace;
};

// Tells the user and the folder, if there is one, what rank 0 sees.
class Narrator : public TrainObserver {
 public:
  Narrator(const TrainJob& job, int64_t every, bool json, RunFolder* folder,
           const Output& out)
      : job_(job), every_(every), json_(json), folder_(folder), out_(out) {}

  void on_step(const StepMetrics& metrics) override {
    const int64_t steps = job_.settings.steps;
    if (folder_ != nullptr) folder_->add_step(metrics);
    if (out_.shows_progress())
      out_.progress(
          progress_line({metrics.step, steps, metrics.seconds, metrics.loss}));
    const bool due = metrics.step == 1 || metrics.step % every_ == 0;
    if (!due && metrics.step != steps && !metrics.eval_loss) return;
    if (out_.shows_progress()) out_.progress("");
    if (json_)
      out_.note(step_line(metrics, steps));
    else
      out_.result(step_line(metrics, steps, out_.ink()) + "\n");
  }
  void on_tensor(int32_t tensor, std::span<const float> whole) override {
    if (folder_ != nullptr) folder_->add_tensor(job_, tensor, whole);
  }

 private:
  const TrainJob& job_;
  int64_t every_;
  bool json_;
  RunFolder* folder_;
  const Output& out_;
};

std::string head_line(const TrainConfig& config, const TrainJob& job,
                      const std::string& data, const std::string& transport) {
  return cat(config.preset, ": ", job.plan.model.num_layers, " layers, ",
             human_count(job.num_parameters()), " parameters, ",
             config.rule.name, " (", config.plan.strategy, ") on ",
             to_string(job.plan.mesh), ", ", job.plan.mesh.world(), " ",
             transport, job.plan.mesh.world() == 1 ? " rank" : " ranks",
             "\ndata: ", data, "; ", config.steps, " steps of ",
             config.batch.global * config.model.length,
             " tokens\nmemory: ", human_bytes(job.most_bytes()),
             " a rank, of which ", human_bytes(job.activations), " activations",
             job.is_plain() ? "" : "\n", zero_line(job));
}

void show_plan(const TrainConfig& config, const TrainJob& job,
               const Output& out, bool json) {
  if (json) {
    out.result(dry_run_json(config, job));
    return;
  }
  out.result(audit_text(job.plan, out.ink()) + "\n" +
             memory_table(job, out.ink()));
  if (job.ranking)
    out.result("\n" + zero_comparison_text(*job.ranking, out.ink()));
}

RankOptions rank_options(const Arguments& a, const TrainConfig& config,
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

void tell_end(const RunSummary& summary, RunFolder* folder, const TrainJob& job,
              bool json, const Output& out) {
  out.progress("");
  if (folder != nullptr) folder->finish(job, summary);
  if (json)
    out.result(to_json(summary));
  else
    out.result(
        closing_lines(summary, folder != nullptr ? folder->report_path() : ""));
}

Outcome run_job(const Arguments& a, const TrainConfig& config, TrainJob& job,
                Ranks& ranks, const Output& out) {
  require_memory(job, ranks.num_here());
  const Data data(config);
  std::unique_ptr<RunFolder> folder;
  if (ranks.speaks() && !config.run.empty())
    folder = std::make_unique<RunFolder>(config.run, a.overwrite);
  std::unique_ptr<Trace> trace;
  if (!a.trace.empty()) trace = std::make_unique<Trace>();
  job.settings.runtime.trace = trace.get();
  const Interrupt interrupt;
  job.settings.stop = &interrupt.flag();

  if (ranks.speaks() && job.ranking)
    out.note(zero_ranking_text(*job.ranking, Ink()));
  if (ranks.speaks())
    out.note(
        head_line(config, job, data.tokens->describe(), ranks.transport()));
  Narrator narrator(job, config.log.every, a.json, folder.get(), out);
  const TrainResult result = train_on(ranks, job, data, narrator);
  if (trace != nullptr)
    out.save(ranks.file_name(a.trace), trace->json(), "trace");
  ranks.finish();
  if (ranks.speaks())
    tell_end(summarize(config, job, result, *data.tokens, ranks.transport()),
             folder.get(), job, a.json, out);
  return Outcome::kDone;
}

Outcome run(const Arguments& a, const Output& out) {
  const TrainConfig config = read_config(a.config);
  const std::optional<MpiLaunch> launch = find_mpi_launch();
  const Mesh mesh = mesh_of(config, launch ? launch->num_ranks : 0);
  std::unique_ptr<Ranks> ranks;
  std::optional<MachineLimits> limits;
  if (chooses_zero(config) || chooses_experts(config)) {
    ranks = make_ranks(rank_options(a, config, mesh));
    limits = measure_limits_on(*ranks);
  }
  TrainJob job = make_job(config, mesh, limits);
  if (!a.dry_run) {
    if (ranks == nullptr) ranks = make_ranks(rank_options(a, config, mesh));
    return run_job(a, config, job, *ranks, out);
  }
  if (ranks != nullptr) ranks->finish();
  const bool is_first =
      !launch || launch->rank == 0 || config.transport == "thread";
  if (ranks != nullptr ? ranks->speaks() : is_first)
    show_plan(config, job, out, a.json);
  return Outcome::kDone;
}

}  // namespace

Verb add_train(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "train", "train a language model with any rule, on any mesh of ranks");
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*app, arguments->config);
  constexpr const char* kGroup = "This run";
  const auto flag = [&](const char* name, bool& value, const char* help) {
    app->add_flag(name, value, help)->group(kGroup);
  };
  const auto text = [&](const char* name, std::string& value, const char* label,
                        const char* help) {
    app->add_option(name, value, help)->option_text(label)->group(kGroup);
  };
  flag(
      "--dry-run", arguments->dry_run,
      "show every tensor's rule, owner and cost, memory and step; run nothing");
  flag("--overwrite", arguments->overwrite,
       "replace the run that the folder of --run holds");
  flag("--json", arguments->json,
       "print the summary as one JSON object; steps go to standard error");
  text("--deadline", arguments->deadline, "TIME",
       "of every collective; past it, exit status 4 [10min]");
  text("--trace", arguments->trace, "FILE",
       "write spans of all ranks, for ui.perfetto.dev");
  app->footer(kExamples + std::string("\n") + train_presets_help());
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli
