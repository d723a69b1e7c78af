// `canzona train`: trains a language model on several ranks.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "canzona/base/device_kind.h"
#include "canzona/base/digest.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/weight_source.h"
#include "canzona/data/batches.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/machine.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/train/train_rank.h"
#include "cli/config.h"
#include "cli/output.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/run_model.h"
#include "cli/test_fault.h"
#include "cli/train_device.h"
#include "cli/train_job.h"
#include "cli/train_telling.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kTrainExamples =
    R"(Examples:
  canzona train                                   tiny, Muon, the built-in language
  canzona train --data book.txt --run runs/one    a text file, on all cores
  canzona train --data corpus/ --preset small --rule soap --mesh dp=2,tp=2 --run runs/soap
  canzona train --model Qwen3-0.6B/config.json --data book.txt --dry-run
  canzona train --data book.txt --run runs/one --save-every 100   checkpoints, the last two kept
  canzona train --run runs/one --resume auto --mesh dp=4          resumes, on other ranks
  canzona train --init Qwen3-0.6B --data book.txt --run runs/tuned
  canzona train --config runs/one/summary.json --seed 2 --run runs/again
  canzona train --preset small --steps 600 --set rule.learning_rate=0.01 --dry-run
  canzona train --preset small --ranks 8 --set batch.global=64 --zero auto --memory-cap 2GB
  mpirun -n 4 canzona train --mesh dp=2,tp=2 --run runs/mpi
  canzona report runs/one runs/soap --html compare.html
  canzona sample --run runs/one --prompt 'the '    see what it learned

Data is a text file, a folder of text files, Megatron's .bin/.idx, llm.c's .bin, or
"synthetic". Text is bytes, or tokens of --tokenizer. The last 5 % are held out for evaluation.

A run that saves (--save-every) can be killed at any time and resumed with --resume auto, bit for
bit as if nothing had happened, or on another mesh: canzona train --run runs/one --resume auto. The
settings of a checkpoint need not be given again; those given override it where a change is allowed
(canzona config keys). SIGUSR1 saves after the current step.

Ctrl-C (or SIGTERM) ends the run after the current step with weights, summary, report and, if it
saves, a checkpoint; during the final evaluation it ends at once; the exit status is then 130 (or
143). A second one kills the process.
A step with a non-finite gradient changes nothing; ten in a row end the run with exit status 5.
A loss ten times the usual one is reported (--set spike.factor=) and, with spike.stop=on, ends the run.

A mesh is dp=D,tp=T,pp=P,ep=E: ranks of data, tensor, pipeline and expert parallelism.
Without --mesh and --ranks every core is a data-parallel rank, as far as the batch can be
divided among them. Results depend on the mesh only in their last digits; on one mesh, no
strategy changes a bit.

canzona config show --preset small     every setting and where it comes from
)";

struct TrainFlags {
  ConfigArguments config;
  bool dry_run = false;
  bool overwrite = false;
  std::string resume;
  std::string missing = "error";
  bool json = false;
  bool mfu = false;
  std::string deadline;
  std::string rendezvous;
  std::string job_token;
  std::string trace;
  std::string flight_record;
  bool share_gpu = false;
  bool check_collectives = false;
  std::shared_ptr<TestFaults> faults = {};  // null: none
};

RankOptions rank_options(const TrainFlags& a, const TrainConfig& config,
                         const Mesh& mesh) {
  RankOptions options;
  options.gate = a.faults.get();
  options.transport = config.transport == "auto" ? "" : config.transport;
  options.device = config.device;
  options.share_gpu = a.share_gpu;
  options.rendezvous = a.rendezvous;
  options.job_token = a.job_token;
  options.num_ranks = mesh.world();
  options.links = !config.link_model.empty();
  options.communicator.ranks_per_node = ranks_per_node_of(config);
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  options.communicator.check_collectives = a.check_collectives;
  options.flight_record = a.flight_record;
  return options;
}

// A run begins from a checkpoint, or with the settings that it had before it
// was killed, or from neither.
struct Beginning {
  std::optional<ResumePoint> point;
  std::optional<Settings> unfinished;

  std::string in_words() const {
    if (point) return cat("the ", point->name, ", manifest ", point->hash);
    return unfinished ? "no checkpoint, but the summary of an unfinished run"
                      : "nothing";
  }
};

// Returns the ranks after checking that they resume from the same checkpoint
// and compute in the same precision.
std::unique_ptr<Ranks> join_ranks(const TrainFlags& a,
                                  const TrainConfig& config, const Mesh& mesh,
                                  const Beginning& beginning) {
  auto ranks = make_ranks(rank_options(a, config, mesh));
  require_same_resume(*ranks, beginning.in_words(), config.run);
  require_same_precision(*ranks, precision_of(config));
  JsonWriter asked;
  write_config(asked, config);
  require_same_request(*ranks, sha256_hex(asked.text()));
  return ranks;
}

// A run's training data.
struct Data {
  explicit Data(const TrainConfig& config)
      : seed(static_cast<uint64_t>(config.seed)),
        tokens(open_tokens(config.data.path, token_options_of(config))),
        batches(*tokens, {.length = config.model.length,
                          .seed = seed,
                          .held_out = config.data.held_out}) {
    if (!config.data.tokenizer.empty())
      tokenizer = read_tokenizer_file(config.data.tokenizer);
  }

  uint64_t seed;
  std::unique_ptr<TokenSource> tokens;
  Batches batches;
  std::string tokenizer;  // its file, for the run's folder; "": none
};

// Runs on all ranks of this process and returns rank 0's result; in a process
// without rank 0 only how the run ended, so that all exit alike.
TrainResult train_on(Ranks& ranks, const TrainJob& job, const Data& data,
                     TrainObserver& observer) {
  TrainResult result;
  ranks.runner()(job.link, [&](Communicator& world) {
    const auto engine = make_engine(job.device);
    TrainResult own =
        train::train(job.settings, job.plan, data.batches, world, *engine,
                     ranks.speaks() ? &observer : nullptr);
    if (world.rank() == 0) {
      result = std::move(own);
    } else if (!ranks.speaks()) {
      result.stop = own.stop;
      result.diverged = own.diverged;
    }
  });
  return result;
}

// The same; if the run fails through no fault of its own, tells the user how to
// continue it, unless resuming is what has just failed. A run that is refused
// before it begins leaves nothing.
TrainResult train_or_hint(Ranks& ranks, const TrainJob& job, const Data& data,
                          const Telling& telling, Narrator& narrator) {
  const auto holds_former = [&] {
    return telling.folder != nullptr && telling.folder->holds_former();
  };
  const auto hint = [&] {
    const std::string text =
        holds_former() ? cat("the run in ", printable(telling.config.run),
                             " was not replaced; nothing was changed")
                       : resume_hint(telling.config.run);
    if (ranks.speaks() && !text.empty()) telling.out.note(text);
  };
  const auto forget = [&] {
    if (telling.folder != nullptr) telling.folder->forget_unless_begun();
  };
  try {
    return train_on(ranks, job, data, narrator);
  } catch (const UsageError&) {
    forget();
    if (holds_former()) hint();
    throw;
  } catch (const StorageError&) {
    forget();
    hint();
    throw;
  } catch (const DataLost&) {
    forget();
    if (holds_former() || !job.settings.resume || narrator.has_resumed())
      hint();
    throw;
  } catch (const std::exception&) {
    hint();
    throw;
  }
}

// What standard error says at the first signal, and at SIGUSR1; nothing with
// --quiet.
struct SignalTexts {
  std::string ending, saving;
};

SignalTexts signal_texts(const Ranks& ranks, const TrainJob& job,
                         const Output& out) {
  if (!ranks.speaks() || out.is_quiet()) return {};
  const bool saves = job.settings.saving.every > 0;
  return {cat("ending after this step with ", saves ? "checkpoint, " : "",
              "weights and summary; another signal ends at once"),
          saves ? "saving after this step"
                : "SIGUSR1: this run keeps no checkpoints (--run, "
                  "--save-every)"};
}

FolderUse folder_use(const TrainFlags& a,
                     const std::optional<ResumePoint>& resume) {
  if (resume && resume->is_of_run) return FolderUse::kGoOn;
  if (a.overwrite)
    return a.resume == "auto" ? FolderUse::kUnlessSaved : FolderUse::kOverwrite;
  return a.resume == "auto" ? FolderUse::kUnlessEnded : FolderUse::kNew;
}

// True if a path is a folder or inside it, with links resolved.
bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code error;
  const auto from = std::filesystem::weakly_canonical(path, error);
  if (error) return false;
  const auto to = std::filesystem::weakly_canonical(folder, error);
  const auto inside = from.lexically_relative(to);
  return !error && !inside.empty() && *inside.begin() != "..";
}

// The source of a run must not be what the run replaces. The checkpoints of
// either may be elsewhere.
void refuse_own_source(const TrainConfig& config, const std::string& flag,
                       const std::string& source) {
  std::error_code error;
  if (source.empty() || !std::filesystem::exists(config.run, error)) return;
  const std::string store = checkpoint_folder(config.run);
  const bool in_store =
      lies_in(source, store) || lies_in(checkpoint_folder(source), store);
  if (!in_store && !lies_in(source, config.run)) return;
  throw UsageError(cat(flag, " ", quoted(source, 300),
                       " lies in the folder of --run ", quoted(config.run, 300),
                       in_store && !lies_in(source, config.run)
                           ? cat(" (", quoted(store, 300), " leads to it)")
                           : "",
                       ", whose run is to be replaced; nothing was changed; "
                       "choose another folder for --run"));
}

void refuse_own_sources(const TrainFlags& a, const TrainConfig& config,
                        const std::optional<ResumePoint>& resume) {
  if (config.run.empty() || folder_use(a, resume) == FolderUse::kGoOn) return;
  refuse_own_source(config, "--init", config.init);
  if (resume) refuse_own_source(config, "--resume", a.resume);
}

std::string config_text(const TrainConfig& config) {
  JsonWriter out(2);
  write_config(out, config);
  return out.take() + "\n";
}

// CANZONA_TEST_SLEEP=2:200
std::function<void(const TrainMoment&)> sleeping_rank() {
  const std::string wish = sleep_for_tests();
  if (wish.empty()) return {};
  const size_t colon = std::min(wish.find(':'), wish.size() - 1);
  const int late = std::atoi(wish.c_str());
  const std::chrono::milliseconds pause(std::atoi(wish.c_str() + colon + 1));
  return [late, pause](const TrainMoment& at) {
    if (at.point == TrainPoint::kForward && at.rank == late)
      std::this_thread::sleep_for(pause);
  };
}

// Returns how often the run in a folder was started, from its summary; 0 if
// unknown.
int64_t starts_of(const std::string& run) {
  try {
    const std::optional<RunSummary> summary = summary_in(run);
    return summary ? summary->starts : 0;
  } catch (const Error&) {
    return 0;  // damaged; it will be rewritten
  }
}

// Adds what the loop needs beside the configuration.
void add_surroundings(const TrainConfig& config, const Data& data,
                      const std::optional<ResumePoint>& resume, TrainJob& job) {
  TrainSettings& settings = job.settings;
  settings.at_point = sleeping_rank();
  const bool saves = settings.saving.every > 0;
  if (!saves && !resume) return;
  settings.data = {.description = data.tokens->describe(),
                   .digest = data.tokens->digest(),
                   .length = config.model.length,
                   .seed = data.seed};
  if (resume) settings.resume = resume->request;
  if (resume && resume->is_of_run)
    settings.starts_before = starts_of(config.run);
  if (saves)
    settings.saving.side_files = {{"config.json", config_text(config)},
                                  {"plan.json", plan_to_json(job.plan)}};
}

[[noreturn]] void throw_save_failure(const TrainResult& result) {
  const std::string text =
      cat("the last save, of step ", result.failed_step,
          ", failed: ", result.save_failure, "; ",
          result.saved_step < 0
              ? "nothing was saved since the start"
              : cat("the newest checkpoint is of step ", result.saved_step));
  if (result.save_not_finite) throw NumericalError(text);
  throw StorageError(text);
}

Outcome outcome_of(const TrainResult& result) {
  if (result.diverged) return Outcome::kDiverged;
  if (result.stop == SIGINT) return Outcome::kInterrupted;
  return result.stop != 0 ? Outcome::kTerminated : Outcome::kDone;
}

// Weights are in place when train_on() returns. Calls that can fail come after
// the summary, and waiting for other ranks comes last.
Outcome run_job(const TrainFlags& a, const TrainConfig& config,
                const std::optional<ResumePoint>& resume, TrainJob& job,
                Ranks& ranks, const Output& out) {
  require_memory(job, ranks.num_here());
  const Data data(config);
  add_surroundings(config, data, resume, job);
  const std::string trace_path =
      a.trace.empty() ? "" : ranks.file_name(a.trace);
  if (!trace_path.empty()) check_late_file("--trace", trace_path, config.run);
  refuse_own_sources(a, config, resume);
  std::unique_ptr<RunFolder> folder;
  if (ranks.speaks() && !config.run.empty())
    folder = std::make_unique<RunFolder>(config.run, folder_use(a, resume));
  Trace trace;
  if (!trace_path.empty()) job.settings.runtime.trace = &trace;
  const SignalTexts texts = signal_texts(ranks, job, out);
  const Interrupt interrupt(texts.ending, texts.saving);
  job.settings.stop = &interrupt.signal();
  if (a.faults != nullptr)
    job.settings.at_point =
        [&a, sleep = job.settings.at_point](const TrainMoment& at) {
          a.faults->at(at);
          if (sleep) sleep(at);
        };
  job.settings.saving.now = &interrupt.wishes();

  RunSummary begun;
  if (ranks.speaks())
    begun = describe_run(config, job, *data.tokens, ranks.transport());
  const Telling telling{config,         job, begun, a.json, folder.get(),
                        data.tokenizer, out};
  if (folder != nullptr && !resume && !folder->holds_former())
    folder->write_begin(data.tokenizer, begun);
  if (ranks.speaks())
    tell_begin(telling, data.tokens->describe(), ranks.transport());
  Narrator narrator(telling);
  const TrainResult result = train_or_hint(ranks, job, data, telling, narrator);
  if (ranks.speaks()) tell_end(narrator.summary_of(result), telling);
  if (!trace_path.empty()) out.save_trace(trace_path, trace);
  if (result.stop != 0)
    ranks.finish_after_signal();
  else
    ranks.finish();
  if (!result.save_failure.empty() && !result.diverged)
    throw_save_failure(result);
  if (const std::string missing = narrator.unrecorded();
      !missing.empty() && !result.diverged)
    throw StorageError(missing);
  return outcome_of(result);
}

// Ranks are threads unless processes were requested or started.
RankCounts rank_counts(const TrainConfig& config,
                       const std::optional<ProcessLaunch>& launch) {
  return {.launched = launch ? launch->num_ranks : 0,
          .cores = launch || config.transport == "mpi" ||
                           config.transport == "tcp" ||
                           device_kind(config.device).has_own_memory
                       ? 1
                       : usable_cpus()};
}

Outcome dry_run(const TrainFlags& a, const TrainConfig& config, TrainJob& job,
                const Output& out) {
  const Data data(config);
  if (!job.speed && !device_kind(job.device).has_own_memory)
    predict_at(measure_speed_here(job.plan), job);
  out.result(dry_run_view(config, job, *data.tokens), a.json);
  return Outcome::kDone;
}

// Returns the requested checkpoint; if `auto` finds none, the settings of the
// run that was killed.
Beginning find_beginning(const TrainFlags& a) {
  Beginning beginning;
  if (a.resume.empty() && a.missing == "init")
    throw UsageError("--missing init: expected --resume as well");
  if (a.resume.empty()) return beginning;
  const std::string run = asked_run_folder(a.config);
  beginning.point = find_resume_point(a.resume, run, a.missing == "init");
  if (beginning.point) return beginning;
  if (!a.overwrite) beginning.unfinished = unfinished_settings(run);
  return beginning;
}

// Reports that `--resume auto` has found no checkpoint.
void report_beginning(const TrainFlags& a, const Beginning& beginning,
                      const std::string& run, const Output& out) {
  if (a.resume.empty() || beginning.point) return;
  out.note(cat("nothing to resume from in ", checkpoint_folder(run),
               ": the run starts from the beginning",
               beginning.unfinished
                   ? cat(", with the settings of the unfinished run in ", run,
                         "/summary.json; given settings override them")
                   : ""));
}

// The setting of a checkpoint counts as requested.
void require_folder_to_save(const TrainConfig& config) {
  if (config.save.every == 0 || !config.run.empty()) return;
  throw UsageError(cat("save.every ", config.save.every, " (",
                       config.origin("save.every"),
                       "): expected --run as well, since checkpoints are kept "
                       "in its folder; --save-every 0 keeps none"));
}

// Says where the run's tokenizer is if it has moved.
void require_tokenizer(const TrainConfig& config, const std::string& beside) {
  const std::string& file = config.data.tokenizer;
  std::error_code error;
  if (file.empty() || std::filesystem::exists(file, error)) return;
  const std::string copy = tokenizer_beside(beside);
  if (copy.empty()) return;  // its reader reports that it is missing
  throw UsageError(cat("data.tokenizer (", config.origin("data.tokenizer"),
                       "): no such file: ", quoted(file, 300),
                       "; the run's folder has a copy: try --tokenizer ",
                       printable(copy)));
}

TrainConfig config_of(const TrainFlags& a, const Beginning& beginning,
                      int64_t launched) {
  if (beginning.unfinished) {
    TrainConfig config = read_config(
        a.config, {.saved = *beginning.unfinished, .launched = launched});
    require_tokenizer(config, config.run);
    return config;
  }
  if (!beginning.point) return read_config(a.config);
  TrainConfig config = resumed_config(a.config, *beginning.point, launched);
  // A resumed run no longer needs its initial weights.
  config.init.clear();
  if (!a.dry_run) require_folder_to_save(config);
  require_tokenizer(config, beginning.point->request.folder);
  return config;
}

// What the run had was made for the mesh that it had; reports what gives way.
void free_former_choices(const Beginning& beginning, TrainConfig& config,
                         bool speaks, const Output& out) {
  if (const std::string note = note_on_strips(config); speaks && !note.empty())
    out.note(cat("note: ", note));
  if (!beginning.point && !beginning.unfinished) return;
  const TrainConfig saved = make_settled_config(
      beginning.point ? beginning.point->saved : *beginning.unfinished);
  for (const std::string& note : free_saved_choices(saved, config))
    if (speaks) out.note(cat("note: ", note));
}

Outcome run(const TrainFlags& a, const Output& out) {
  if (!a.deadline.empty()) parse_deadline(a.deadline);
  const std::optional<ProcessLaunch> launch = find_process_launch();
  const bool is_rank_0 = !launch || launch->rank == 0;
  const Beginning beginning = find_beginning(a);
  TrainConfig config = config_of(a, beginning, launch ? launch->num_ranks : 0);
  require_run_folder(config.run);
  if (a.overwrite && config.run.empty())
    throw UsageError("--overwrite: expected --run with the folder of a run");
  if (!a.flight_record.empty() && !a.dry_run)
    check_late_file("--flight-record", a.flight_record, config.run);
  const Mesh mesh = settle_mesh(config, rank_counts(config, launch));
  if (!a.resume.empty() && !beginning.point && !beginning.unfinished)
    require_run_or_data(config);
  if (is_rank_0)
    report_beginning(a, beginning, asked_run_folder(a.config), out);
  free_former_choices(beginning, config, is_rank_0, out);
  std::unique_ptr<Ranks> ranks;
  std::optional<MachineLimits> limits;
  if (chooses_zero(config) || chooses_experts(config)) {
    ranks = join_ranks(a, config, mesh, beginning);
    limits = measure_limits_on(*ranks);
  }
  if (device_kind(config.device).has_own_memory && !a.dry_run) {
    give_streams_connections(config.device);
    ranks = join_ranks(a, config, mesh, beginning);
  }
  const auto gpu = find_train_device(config, mesh, ranks.get());
  if (gpu) settle_micro_batch(*gpu, mesh, config);
  TrainJob job = make_job(config, mesh, limits);
  settle_zero(job, config);
  if (gpu) set_product_rate(gpu->peak_flops, job);
  if (!a.dry_run) {
    if (ranks == nullptr) ranks = join_ranks(a, config, mesh, beginning);
    if (gpu) require_fits(*gpu, job);
    if (job.settings.initial != nullptr)
      require_same_init(*ranks, job.settings.initial->path());
    if (a.mfu && !limits && !gpu)
      set_product_rate(measure_product_rate_on(*ranks), job);
    return run_job(a, config, beginning.point, job, *ranks, out);
  }
  if (ranks != nullptr) ranks->finish();
  const bool is_first = is_rank_0 || config.transport == "thread";
  const bool speaks = ranks != nullptr ? ranks->speaks() : is_first;
  return speaks ? dry_run(a, config, job, out) : Outcome::kDone;
}

OptionRows run_options(TrainFlags& a) {
  return in_group(
      "This run",
      {flag("--dry-run", a.dry_run,
            "show every tensor's rule, owner and cost, the memory, mesh, data "
            "and predicted step; do not train"),
       option("--resume", a.resume, "FROM",
              "resume from a checkpoint: auto (the newest complete one of "
              "--run, or with --data start anew if there is none), a step, or "
              "a path; its settings need not be given again")
           .offering({"auto"}),
       option("--missing", a.missing, "HOW",
              "with --resume: states that the checkpoint lacks, of a rule with "
              "other options, are an error, or begin anew (init)")
           .only({"error", "init"}),
       flag("--overwrite", a.overwrite,
            "replace the run in the folder of --run, with its checkpoints; "
            "with --resume auto, only if it has no checkpoints; with --resume "
            "PATH of another run, once that is loaded"),
       flag("--json", a.json,
            "print the summary as one JSON object; steps go to standard error"),
       flag("--mfu", a.mfu,
            "measure the speed of products first, and report model flops "
            "utilization (--zero auto measures it, too; GPUs have a nominal "
            "one)"),
       deadline_option(a.deadline),
       option("--rendezvous", a.rendezvous, "HOST:PORT",
              "with --transport tcp: an address of rank 0's machine, where all "
              "ranks meet [the launcher's]"),
       option("--job-token", a.job_token, "TEXT",
              "with --transport tcp: distinguishes this job from others at the "
              "same address"),
       flag("--check-collectives", a.check_collectives,
            "compare operation, label and sizes between ranks before every "
            "collective"),
       option("--flight-record", a.flight_record, "FILE",
              "append the last operations of every rank that fails (of "
              "processes: FILE.RANK)"),
       option("--trace", a.trace, "FILE",
              "write spans of all ranks, for ui.perfetto.dev"),
       flag("--share-gpu", a.share_gpu,
            "with --transport nccl: let ranks share a GPU, for tests")});
}

}  // namespace

Verb add_train(CLI::App& root) {
  auto arguments = std::make_shared<TrainFlags>();
  return add_verb(
      root, {.name = "train",
             .description =
                 "train a language model with any rule on any mesh of ranks",
             .options = joined(
                 {config_options(arguments->config), run_options(*arguments)}),
             .footer = cat(kTrainExamples, "\n", train_presets_help()),
             .run = [arguments](const Output& out) {
               arguments->faults = read_test_faults();
               return run(*arguments, out);
             }});
}

}  // namespace canzona::cli
