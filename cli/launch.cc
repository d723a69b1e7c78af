// `canzona launch`: ranks as processes, watched and restarted.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/launch/rank_folder.h"
#include "canzona/measure/machine.h"
#include "canzona/report/train_lines.h"
#include "canzona/trace/run_summary.h"
#include "cli/config.h"
#include "cli/launch_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "cli/train_job.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kLaunchExamples =
    R"(Runs a command as several processes on this machine, one per rank, and watches them: every
line that rank 2 prints begins with [r2]. The words after -- are a canzona command as you
would give it without launch.

When a rank is killed, crashes, stops responding or loses another rank (exit status 4), all
ranks are stopped and `train` is restarted with --resume auto: it continues from its last
checkpoint. A command with --resume or --overwrite that has not saved yet is repeated as
given. An invalid command (2), damaged data (3), divergence (5) or a full disk (6) would
occur again, so they end the run, as does the failure after --max-restarts restarts.

Ctrl-C, SIGTERM and SIGUSR1 are forwarded to all ranks: `train` saves and ends with 130 or
143, or saves and continues. No process outlives the launcher, even if it is killed.

Examples:
  canzona launch --ranks 4 -- train --data book.txt --run runs/one --save-every 100
  canzona launch --ranks 4 --max-restarts 10 -- train --mesh dp=2,tp=2 --run runs/two
  canzona launch --elastic 2:4 -- train --data book.txt --run runs/three --save-every 100
  canzona launch --ranks 4 --json -- bench step --model qwen3-0.6b --scale 1/8 --mesh dp=4

--elastic 2:4 starts with 4 ranks and continues with those that remain, at least 2; the batch
is redistributed over them, so --mesh must not be given.

mpirun gets the options it needs here: to run as root, with more ranks than cores, and to give
ranks time to finish. With `train --transport tcp`, launch starts the processes itself, and
they connect over sockets. Without MPI, one process runs all ranks as threads; it is watched
and restarted in the same way. Under srun or torchrun, and on several machines, launch is not
used: `srun canzona train …` or `mpirun canzona train …` start the ranks themselves.

The last line says what happened, where, and what to do. The exit status is that of the run;
4 if a rank was lost and no restart was left; 130 or 143 after SIGINT or SIGTERM, even if a
rank was lost while the run was ending.
)";

// Forwards what ranks print, and keeps what explains a failure.
class LaunchListener : public AttemptObserver {
 public:
  using Tend = std::function<bool()>;

  // `tend` is set during the attempt.
  LaunchListener(const Output& out, bool to_errors, Tend& tend)
      : out_(out), to_errors_(to_errors), tend_(tend) {}
  ~LaunchListener() override { tend_ = nullptr; }

  void on_begin(Tend tend) override { tend_ = std::move(tend); }
  void on_line(int rank, bool is_error, std::string_view line) override {
    pass_on(rank < 0 ? std::string(line) : cat("[r", rank, "] ", line),
            is_error || to_errors_);
    constexpr std::string_view kError = "error: ";
    if (!is_error || !line.starts_with(kError)) return;
    errors_.add(rank, line.substr(kError.size()));
  }
  void on_signal(int signal) override {
    out_.note(cat("launch: ", signal_name(signal), " forwarded to all ranks"));
  }

  // Returns the reason given by a rank that failed on its own.
  std::string reason_of(const Cause& cause) const {
    if (cause.ranks.empty() || cause.is_signal) return "";
    for (const ErrorLines::Line& said : errors_.all())
      if (said.rank == cause.ranks.front()) return printable(said.words);
    return "";
  }
  // Returns which operation the other ranks were in when they lost it,
  // preferably from those that name it.
  std::string operation_of(const Cause& cause) const {
    std::string found;
    for (const ErrorLines::Line& said : errors_.all()) {
      const std::string operation = operation_in(said.words);
      if (operation.empty()) continue;
      const bool names = !cause.ranks.empty() &&
                         said.words.find(cat("rank ", cause.ranks.front(),
                                             " ")) != std::string::npos;
      if (names) return printable(operation);
      if (found.empty()) found = printable(operation);
    }
    return found;
  }

 private:
  // Once a line was dropped, so are all that follow: waiting for each would
  // delay ranks that are ending.
  void pass_on(const std::string& line, bool is_error) {
    bool& is_unread = is_error ? errors_unread_ : output_unread_;
    if (!is_unread) is_unread = !out_.pass_on(line, is_error);
  }

  const Output& out_;
  bool to_errors_;
  Tend& tend_;
  bool output_unread_ = false;
  bool errors_unread_ = false;
  ErrorLines errors_;
};

// Returns the checkpoints of a run, from the one that it would resume from on:
// names with the hashes of their manifests.
std::vector<std::string> checkpoints_of(const std::string& run) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const std::string folder = checkpoint_folder(run);
  std::vector<std::string> out;
  if (run.empty() || !has_checkpoint(folder)) return out;
  for (const ListedCheckpoint& listed : resume_order(Folder::open(folder))) {
    std::string hash;
    try {
      hash = manifest_hash_of(
          read_file(cat(folder, "/", listed.name, "/manifest.json"), kMostBytes,
                    "the manifest"));
    } catch (const Error&) {
      // A damaged one has no hash.
    }
    out.push_back(cat(listed.name, " ", hash));
  }
  return out;
}

// True if the folder does not exist or is empty.
bool is_empty_run(const std::string& run) {
  std::error_code error;
  const bool is_empty = std::filesystem::is_empty(run, error);
  return error ? !std::filesystem::exists(run, error) : is_empty;
}

// Returns the step that a run was in when a rank ended with this status, from
// its folder; 0 if unknown. A run that a signal ends has finished its step.
int64_t step_at_end(const std::string& run, int status) {
  const std::string path = run + "/metrics.jsonl";
  std::error_code none;
  if (run.empty() || !std::filesystem::exists(path, none)) return 0;
  try {
    const auto steps =
        read_metrics(read_file(path, int64_t{1} << 30, "the metrics"), path);
    const bool is_done =
        status == ExitStatus::kInterrupted || status == ExitStatus::kTerminated;
    const int64_t done = steps.empty() ? 0 : steps.back().step;
    return is_done ? done : done + 1;
  } catch (const Error&) {
    return 0;  // its last line may be incomplete
  }
}

std::optional<int64_t> newest_checkpoint(const std::string& run) {
  const std::string path = run + "/ckpt";
  std::error_code none;
  if (run.empty() || !std::filesystem::is_directory(path, none)) return {};
  try {
    std::vector<std::string> notes;
    return newest_verified(Folder::open(path), usable_cpus(), notes)
        .manifest()
        .step;
  } catch (const Error&) {
    return {};
  }
}

Outcome outcome_of_status(int status) {
  switch (status) {
    case ExitStatus::kDone:
      return Outcome::kDone;
    case ExitStatus::kUsage:
      return Outcome::kRefused;
    case ExitStatus::kDataLost:
      return Outcome::kDataLost;
    case ExitStatus::kPeerLost:
      return Outcome::kPeerLost;
    case ExitStatus::kNumerical:
      return Outcome::kDiverged;
    case ExitStatus::kStorage:
      return Outcome::kNoStorage;
    case ExitStatus::kInterrupted:
      return Outcome::kInterrupted;
    case ExitStatus::kTerminated:
      return Outcome::kTerminated;
    default:
      return Outcome::kFailed;
  }
}

class Launcher {
 public:
  Launcher(const LaunchFlags& flags, const Output& out)
      : flags_(flags),
        out_(out),
        plan_(settle_launch(flags, out)),
        command_(plan_.command) {
    out_.set_gives_up([this] { return gives_up(); });
    report_.transport = plan_.transport;
    if (plan_.config) report_.run = plan_.config->run;
    first_checkpoints_ = checkpoints_of(report_.run);
    was_empty_ = is_empty_run(report_.run);
    report_.max_restarts = flags.max_restarts;
    if (plan_.is_train && report_.run.empty() && flags.max_restarts > 0)
      out.note(
          "launch: without --run there is nothing to resume from; the run will "
          "not be restarted");
  }

  Outcome run() {
    adopt_orphans();
    remove_abandoned_folders();
    tell_begin();
    do attempt();
    while (goes_on());
    report_.checkpoint = newest_checkpoint(report_.run);
    if (flags_.json) out_.result(launch_json(report_));
    if (report_.exit_status() == ExitStatus::kDone)
      out_.note(cat("launch: ", launch_line(report_)));
    else
      out_.error(launch_line(report_));
    return outcome_of_status(report_.exit_status());
  }

 private:
  void tell_begin() const;
  void attempt();
  bool goes_on();
  bool may_restart();
  bool shrink(const LaunchedAttempt& last);
  RestartState restart_state() const;
  bool gives_up();

  const LaunchFlags& flags_;
  Output out_;
  LaunchPlan plan_;
  std::vector<std::string> command_;  // for the next attempt
  // The state before the first attempt.
  std::vector<std::string> first_checkpoints_;
  bool was_empty_ = false;
  std::function<bool()> tend_;  // of the current attempt
  int signal_ = 0;              // that ends the run and came while the output
                                // was blocked
  LaunchReport report_;
  SignalQueue signals_;
};

void Launcher::tell_begin() const {
  if (plan_.transport == "tcp")
    out_.note(cat("launch: ", counted_text(plan_.num_ranks, "rank"),
                  " over sockets"));
  if (plan_.transport != "mpi") return;
  const bool root = ::geteuid() == 0 && plan_.is_open_mpi;
  const bool many = plan_.num_ranks > usable_cpus() && plan_.is_open_mpi;
  out_.note(cat("launch: ", counted_text(plan_.num_ranks, "rank"), " by ",
                plan_.mpirun, root ? ", allowed to run as root" : "",
                many ? cat(root ? " and" : ", allowed to run",
                           " more ranks than the ", usable_cpus(), " cores")
                     : ""));
}

void Launcher::attempt() {
  LaunchListener listener(out_, flags_.json, tend_);
  LaunchedAttempt attempt;
  attempt.num_ranks = plan_.num_ranks;
  attempt.result = run_attempt(
      {.num_ranks = plan_.num_ranks,
       .has_keepers = plan_.transport != "thread",
       .words =
           [&](const std::string& folder) {
             return attempt_words(plan_, command_, folder);
           },
       .variables = variables_of(plan_),
       .starter = plan_.transport == "mpi" ? "mpirun" : "the starter",
       .grace = plan_.grace},
      signals_, listener);
  tend_ = nullptr;
  attempt.cause = cause_of(attempt.result);
  attempt.reason = listener.reason_of(attempt.cause);
  attempt.operation = attempt.cause.status == ExitStatus::kPeerLost ||
                              attempt.result.signal != 0
                          ? listener.operation_of(attempt.cause)
                          : "";
  attempt.step = attempt.cause.status == 0
                     ? 0
                     : step_at_end(report_.run, attempt.cause.status);
  // mpirun's own output matters only if it explains why no rank started.
  const bool started = std::ranges::any_of(
      attempt.result.ranks, [](const RankEnd& rank) { return rank.started; });
  if (!started)
    for (const std::string& line : attempt.result.launcher_lines)
      out_.pass_on(cat("[", attempt.result.starter, "] ", line), true);
  report_.attempts.push_back(std::move(attempt));
}

// Called while output is blocked: signals still count, and once the run is
// ending, the remaining text is dropped.
bool Launcher::gives_up() {
  if (tend_) return tend_();
  while (const int signal = signals_.next())
    if (ends_runs(signal)) signal_ = signal;
  return signal_ != 0 ||
         (!report_.attempts.empty() && report_.last().result.signal != 0);
}

RestartState Launcher::restart_state() const {
  const std::vector<std::string> now = checkpoints_of(report_.run);
  return {.had_checkpoint = !first_checkpoints_.empty(),
          .has_saved = !now.empty() &&
                       std::ranges::find(first_checkpoints_, now.front()) ==
                           first_checkpoints_.end(),
          .has_remains = was_empty_ && !is_empty_run(report_.run),
          .is_empty = is_empty_run(report_.run)};
}

bool Launcher::may_restart() {
  const LaunchedAttempt& last = report_.last();
  if (!is_worth_restarting(last.cause) || last.result.signal != 0) return false;
  if (!plan_.is_train || report_.run.empty()) return false;
  if (report_.num_restarts() < flags_.max_restarts) return true;
  if (flags_.max_restarts > 0)
    report_.why_not_again =
        cat("--max-restarts ", flags_.max_restarts, " reached");
  return false;
}

// Returns true if the run can continue with the remaining ranks.
bool Launcher::shrink(const LaunchedAttempt& last) {
  const int remaining = plan_.transport == "thread"
                            ? plan_.num_ranks
                            : num_remaining(last.result);
  for (int ranks = remaining; ranks >= plan_.elastic->least; --ranks)
    if (why_not_on(plan_, ranks).empty()) {
      plan_.num_ranks = ranks;
      return true;
    }
  report_.why_not_again =
      cat(remaining, " of ", last.num_ranks, " ranks remain, and --elastic ",
          flags_.elastic,
          " allows no smaller number of ranks that the run fits on");
  return false;
}

bool Launcher::goes_on() {
  if (!may_restart()) return false;
  const LaunchedAttempt& last = report_.last();
  if (plan_.elastic && !shrink(last)) return false;
  const int restart = report_.num_restarts() + 1;
  const auto pause = pause_before(restart);
  command_ = restart_words(plan_.command, restart_state());
  const bool resumes = resume_wish(command_) == "auto";
  std::string line = cat("launch: ", last.cause.words);
  if (last.step > 0) line += cat(" at step ", last.step);
  if (!last.operation.empty()) line += " in " + last.operation;
  out_.note(cat(
      line, "; restart ", restart, " of ", flags_.max_restarts,
      plan_.elastic ? cat(" on ", counted_text(plan_.num_ranks, "rank")) : "",
      resumes ? " with --resume auto in "
              : " as given, since nothing has been saved yet, in ",
      human_seconds(1e-3 * static_cast<double>(pause.count()))));
  const int signal = signal_ != 0 ? signal_ : signals_.wait_for_end(pause);
  if (signal == 0) return true;
  end_as_asked(signal, report_.attempts.back().cause);
  return false;
}

// Runs the keeper of one rank; see canzona/launch/rank_folder.h.
Outcome keep_rank(const LaunchFlags& a) {
  const std::optional<ProcessLaunch> launch = find_process_launch();
  if (!launch || a.command.empty())
    throw UsageError("--as-rank is only for internal use by canzona launch");
  run_as_rank({a.as_rank, launch->rank, a.command});
  return Outcome::kDone;
}

Outcome run(const LaunchFlags& a, const Output& out) {
  if (a.start > 0) {
    start_keepers(a.start, "CANZONA_RANK", a.command);
    return Outcome::kDone;
  }
  if (!a.as_rank.empty()) return keep_rank(a);
  return Launcher(a, out).run();
}

OptionRows options_of(LaunchFlags& a) {
  return {
      number("--ranks", a.ranks, 1, kMostRanks, "N",
             "number of ranks, one process each")
          .by_default("what the command's mesh has, or the checkpoint that it "
                      "resumes, else one per core"),
      option("--max-restarts", a.max_restarts, "N",
             "how often to restart `train` from its last checkpoint")
          .between(0, 1'000'000),
      option("--elastic", a.elastic, "MIN:MAX",
             "start with MAX ranks and continue with those that remain, at "
             "least MIN"),
      option("--grace", a.grace, "TIME",
             "time for the other ranks to end by themselves after one has "
             "failed"),
      option("--mpirun", a.mpirun, "FILE", "the mpirun to use")
          .by_default("mpirun of this program's MPI, in PATH"),
      flag("--json", a.json,
           "print the outcome as one JSON object; output of ranks goes to "
           "standard error"),
      option("--program", a.program, "FILE",
             "for tests: the program to run instead of this one")
          .hidden(),
      option("--as-rank", a.as_rank, "DIR", "internal: keep one rank").hidden(),
      option("--start", a.start, "N", "internal: start the keepers").hidden(),
      argument("COMMAND", a.command,
               "the command to run, after --: train …, bench step …")};
}

}  // namespace

Verb add_launch(CLI::App& root) {
  auto a = std::make_shared<LaunchFlags>();
  return add_verb(
      root,
      {.name = "launch",
       .description = "start ranks as processes, watch them and restart them",
       .options = options_of(*a),
       .footer = kLaunchExamples,
       .run = [a](const Output& out) { return run(*a, out); }});
}

}  // namespace canzona::cli
