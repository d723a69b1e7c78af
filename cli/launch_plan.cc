#include "cli/launch_plan.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/launch/rank_folder.h"
#include "canzona/measure/machine.h"
#include "canzona/report/train_lines.h"
#include "canzona/train/resume.h"
#include "cli/options.h"
#include "cli/precision.h"
#include "cli/ranks.h"
#include "cli/train_job.h"
#include "cli/with_flags.h"

namespace canzona::cli {
namespace {

ElasticRange parse_elastic(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw UsageError(cat("--elastic ", quoted(text),
                         ": expected MIN:MAX, the fewest and the most ranks, "
                         "such as 2:4"));
  const auto number = [&](const std::string& word) {
    return static_cast<int>(
        parse_integer(word, 1, kMostRanks, cat("--elastic ", quoted(text))));
  };
  const ElasticRange range{number(text.substr(0, colon)),
                           number(text.substr(colon + 1))};
  if (range.least > range.most)
    throw UsageError(cat("--elastic ", quoted(text),
                         ": expected MIN:MAX with MIN at most MAX"));
  return range;
}

// The words of a command as `train` reads them.
struct TrainWords {
  CLI::App app;
  ConfigArguments arguments;
  bool understood = false;  // if not, train itself reports it

  explicit TrainWords(const std::vector<std::string>& command) {
    declare(app, config_options(arguments));
    app.allow_extras();
    std::vector<std::string> words(command.rbegin(), command.rend() - 1);
    try {
      app.parse(words);
      understood = true;
    } catch (const CLI::ParseError&) {
    }
  }
};

// Returns the configuration that `train` would run with; nothing if its
// arguments cannot be understood.
std::optional<TrainConfig> config_of(const std::vector<std::string>& command,
                                     const ConfigBase& base = {}) {
  const TrainWords words(command);
  if (!words.understood) return std::nullopt;
  return read_config(words.arguments, base);
}

// Returns the settings of the checkpoint that the command resumes from; nothing
// if there is none or it cannot be read, which train itself reports.
Settings settings_to_resume(const LaunchPlan& plan) {
  const std::string wish = resume_wish(plan.command);
  if (wish.empty() || !plan.config) return {};
  try {
    const auto point = find_resume_point(wish, plan.config->run);
    return point ? point->saved : Settings();
  } catch (const Error&) {
    return {};
  }
}

// Returns the mesh of the checkpoint that the command resumes from, unless the
// command specifies another; "" if there is none or it does not agree with the
// command, which train itself reports.
std::string saved_mesh(const LaunchPlan& plan) {
  if (plan.saved.empty() || !plan.config->mesh.empty() ||
      plan.config->ranks > 0)
    return "";
  try {
    const auto config = config_of(plan.command, {.saved = plan.saved});
    return config ? config->mesh : "";
  } catch (const Error&) {
    return "";
  }
}

void refuse_other_launcher() {
  const std::string other = other_launcher(environment_variable);
  if (other.empty()) return;
  throw UsageError(cat(
      "launch is not needed under ", other,
      ", which has already started a process for every rank; give it the "
      "command itself: ",
      other, other == "torchrun" ? " --no-python" : "", " … canzona train …"));
}

void refuse_fixed_mesh(const LaunchPlan& plan, const std::string& elastic) {
  if (!plan.config || plan.config->mesh.empty()) return;
  throw UsageError(cat("--elastic ", elastic, ": the mesh is fixed to ",
                       plan.config->mesh, " (", plan.config->origin("mesh"),
                       ") and cannot follow the number of ranks; leave it out "
                       "to make every rank a data-parallel rank"));
}

// Otherwise a run that loses ranks would only then be refused.
void require_fewest_fits(const LaunchPlan& plan, const std::string& elastic) {
  const std::string why = why_not_on(plan, plan.elastic->least);
  if (why.empty()) return;
  throw UsageError(cat("--elastic ", elastic,
                       ": the run could not continue on ",
                       counted_text(plan.elastic->least, "rank"), ": ", why));
}

// Returns how many ranks are requested: by launch, otherwise by the command, by
// the checkpoint that it resumes from, or one per core.
int ranks_wanted(const LaunchFlags& a, const LaunchPlan& plan,
                 const Output& out) {
  if (a.ranks) return static_cast<int>(*a.ranks);
  if (plan.elastic) return plan.elastic->most;
  if (!plan.config)
    throw UsageError(
        "launch: the number of ranks is not known; give --ranks N");
  if (const std::string mesh = saved_mesh(plan); !mesh.empty()) {
    const int64_t ranks = parse_mesh(mesh).world();
    if (ranks <= kMostRanks) {
      out.note(cat("launch: ", counted_text(ranks, "rank"),
                   ", as in the checkpoint that --resume ",
                   printable(resume_wish(plan.command)), " uses (", mesh,
                   "); --ranks N overrides it"));
      return static_cast<int>(ranks);
    }
  }
  TrainConfig copy = *plan.config;
  return settle_mesh(copy, {.cores = usable_cpus()}).world();
}

// Returns the transport of the command, if it says.
std::string wanted_transport(const LaunchPlan& plan) {
  if (plan.config) return plan.config->transport;
  constexpr std::string_view kFlag = "--transport";
  const auto& words = plan.command;
  const auto flag = std::ranges::find_if(words, [&](const std::string& word) {
    return word.substr(0, word.find('=')) == kFlag;
  });
  if (flag == words.end()) return "auto";
  if (flag->size() > kFlag.size()) return flag->substr(kFlag.size() + 1);
  return flag + 1 == words.end() ? "auto" : flag[1];
}

// Returns mpirun of the library that this program was built with; "" if there
// is none.
std::string find_mpirun(const LaunchFlags& a, bool is_open_mpi) {
  const char* path = environment_variable("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  if (!a.mpirun.empty()) {
    std::string found = find_program(a.mpirun, folders);
    if (found.empty())
      throw UsageError(cat("--mpirun ", quoted(a.mpirun), ": no such program"));
    return found;
  }
  const std::string own = is_open_mpi ? "mpirun.openmpi" : "mpirun.mpich";
  for (const std::string& name : {own, std::string("mpirun")})
    if (std::string found = find_program(name, folders); !found.empty())
      return found;
  return "";
}

void settle_transport(const LaunchFlags& a, const Output& out,
                      LaunchPlan& plan) {
  const std::string wanted = wanted_transport(plan);
  plan.transport = wanted == "tcp" ? "tcp" : "thread";
  if (wanted == "tcp") return;
  std::string why = "--transport thread";
  if (wanted != "thread" && !mpi_is_built()) why = "this build has no MPI";
  if (wanted != "thread" && mpi_is_built()) {
    plan.mpirun = find_mpirun(a, plan.is_open_mpi);
    if (!plan.mpirun.empty()) plan.transport = "mpi";
    why = "there is no mpirun in PATH";
  }
  // NCCL needs a process for each GPU; they can meet over sockets.
  if (plan.transport == "thread" && wanted == "nccl") plan.transport = "tcp";
  if (plan.transport == "thread")
    out.note(cat("launch: ", why, ": one process runs ",
                 plan.num_ranks == 1
                     ? "the only rank"
                     : cat("all ", plan.num_ranks, " ranks as threads")));
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// Returns a local port that is free now.
int free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.number(), any, size) != 0 ||
      ::getsockname(socket.number(), any, &size) != 0)
    throw UsageError(cat("launch: cannot find a free port at 127.0.0.1: ",
                         std::generic_category().message(errno)));
  return ntohs(address.sin_port);
}

}  // namespace

LaunchPlan settle_launch(const LaunchFlags& a, const Output& out) {
  refuse_other_launcher();
  if (a.command.empty())
    throw UsageError(
        "launch: nothing to start; give a command after --, such as canzona "
        "launch --ranks 4 -- train --run runs/one");
  LaunchPlan plan;
  plan.self = own_program();
  plan.program = a.program.empty() ? plan.self : a.program;
  plan.command = a.command;
  plan.is_train = a.command.front() == "train";
  plan.is_open_mpi = mpi_description().starts_with("Open MPI");
  plan.grace = std::chrono::milliseconds(
      static_cast<int64_t>(1e3 * parse_duration(a.grace, "--grace")));
  if (plan.is_train) plan.config = config_of(a.command);
  plan.saved = settings_to_resume(plan);
  if (!a.elastic.empty()) {
    plan.elastic = parse_elastic(a.elastic);
    if (!plan.is_train)
      throw UsageError("--elastic: only train can continue with fewer ranks");
    refuse_fixed_mesh(plan, a.elastic);
  }
  plan.num_ranks = ranks_wanted(a, plan, out);
  if (plan.elastic && (plan.num_ranks < plan.elastic->least ||
                       plan.num_ranks > plan.elastic->most))
    throw UsageError(
        cat("--ranks ", plan.num_ranks, ": not within --elastic ", a.elastic));
  if (plan.config && plan.config->ranks > 0 &&
      plan.config->ranks != plan.num_ranks)
    throw UsageError(cat("launch starts ", counted_text(plan.num_ranks, "rank"),
                         ", but train has --ranks ", plan.config->ranks,
                         "; leave out the latter"));
  if (plan.elastic) require_fewest_fits(plan, a.elastic);
  settle_transport(a, out, plan);
  return plan;
}

std::string why_not_on(const LaunchPlan& plan, int num_ranks) {
  if (!plan.config) return "";
  const TrainWords words(plan.command);
  const bool resumes = !plan.saved.empty();
  try {
    TrainConfig config = read_config(
        words.arguments,
        {.saved = plan.saved, .has_weights = resumes, .launched = num_ranks});
    const Mesh mesh = settle_mesh(config, {.launched = num_ranks});
    if (resumes) free_saved_choices(make_settled_config(plan.saved), config);
    require_plan(config, mesh);
    return "";
  } catch (const UsageError& error) {
    return with_flags(words.app, error.what());
  }
}

std::vector<std::string> attempt_words(const LaunchPlan& plan,
                                       const std::vector<std::string>& command,
                                       const std::string& folder) {
  std::vector<std::string> words;
  if (plan.transport == "mpi")
    words = mpirun_words({.path = plan.mpirun,
                          .is_open_mpi = plan.is_open_mpi,
                          .num_ranks = plan.num_ranks,
                          .num_cpus = usable_cpus()});
  if (plan.transport == "tcp")
    words = {plan.self, "launch", "--start", cat(plan.num_ranks), "--"};
  if (plan.transport != "thread")
    words.insert(words.end(), {plan.self, "launch", "--as-rank", folder, "--"});
  words.push_back(plan.program);
  words.insert(words.end(), command.begin(), command.end());
  const bool is_given =
      plan.config && (!plan.config->mesh.empty() || plan.config->ranks > 0);
  if (plan.transport == "thread" && plan.is_train && !is_given)
    words.insert(words.end(), {"--ranks", cat(plan.num_ranks)});
  return words;
}

std::vector<std::pair<std::string, std::string>> variables_of(
    const LaunchPlan& plan) {
  if (plan.transport == "mpi")
    return mpirun_variables(plan.is_open_mpi, ::geteuid() == 0);
  if (plan.transport == "thread") return {};
  std::random_device random;
  return {{"CANZONA_NUM_RANKS", cat(plan.num_ranks)},
          {"CANZONA_NUM_LOCAL", cat(plan.num_ranks)},
          {"CANZONA_RENDEZVOUS", cat("127.0.0.1:", free_port())},
          {"CANZONA_JOB_TOKEN", cat(random(), "-", random())}};
}

namespace {

constexpr const char* kBetween = " · ";

std::string what_happened(const LaunchedAttempt& attempt) {
  std::string out = attempt.cause.words;
  if (attempt.step > 0) out += cat(" at step ", attempt.step);
  if (!attempt.operation.empty()) out += " in " + attempt.operation;
  if (!attempt.reason.empty()) out += ": " + attempt.reason;
  return out;
}

std::string checkpoint_words(const LaunchReport& report) {
  if (report.run.empty()) return "no run folder, so no checkpoint";
  if (!report.checkpoint) return "no checkpoint yet";
  return cat("last checkpoint step ", *report.checkpoint, " (verified)");
}

std::string what_to_do(const LaunchReport& report) {
  const std::string again =
      report.run.empty() ? "run it again" : "run it again with --resume auto";
  switch (report.exit_status()) {
    case ExitStatus::kUsage:
      return "correct the command";
    case ExitStatus::kDataLost:
      return report.run.empty()
                 ? "check the data"
                 : cat("check it with canzona ckpt verify ", report.run);
    case ExitStatus::kNumerical:
      return "try a lower learning rate, a longer warmup or a smaller clip";
    case ExitStatus::kStorage:
      return cat("free space on the disk, then ", again);
    case ExitStatus::kPeerLost:
    case ExitStatus::kInterrupted:
    case ExitStatus::kTerminated:
      return again;
    default:
      return "see the lines above; unless memory ran out, please report this";
  }
}

void write_end(JsonWriter& out, const ProcessEnd& end) {
  out.member("exit");
  if (end.exit_status >= 0)
    out.value(end.exit_status);
  else
    out.null();
  out.member("signal");
  if (end.signal != 0)
    out.value(signal_name(end.signal));
  else
    out.null();
}

void write_ranks(JsonWriter& out, const AttemptResult& result) {
  out.member("ends").begin_array();
  for (const RankEnd& rank : result.ranks) {
    out.begin_object().field("rank", rank.rank);
    write_end(out, rank.end);
    out.field("seconds", rank.seconds).field("killed", rank.killed);
    out.end_object();
  }
  out.end_array();
}

void write_attempt(JsonWriter& out, const LaunchedAttempt& attempt) {
  const Cause& cause = attempt.cause;
  out.begin_object()
      .field("ranks", attempt.num_ranks)
      .field("seconds", attempt.result.seconds)
      .field("exit", cause.status)
      .field("cause", cause.words);
  out.member("asked");
  if (cause.asked != 0)
    out.value(signal_name(cause.asked));
  else
    out.null();
  out.member("failed_ranks").values(cause.ranks);
  out.field("operation", attempt.operation).field("reason", attempt.reason);
  out.member("step");
  if (attempt.step > 0)
    out.value(attempt.step);
  else
    out.null();
  write_ranks(out, attempt.result);
  out.end_object();
}

}  // namespace

std::string launch_line(const LaunchReport& report) {
  std::vector<std::string> parts{what_happened(report.last())};
  if (report.exit_status() == ExitStatus::kDone) {
    parts.push_back(counted_text(report.num_restarts(), "restart"));
    return join(parts, kBetween);
  }
  if (const int asked = report.last().cause.asked; asked != 0)
    parts.push_back(cat("after ", signal_name(asked)));
  parts.push_back(checkpoint_words(report));
  if (!report.why_not_again.empty()) parts.push_back(report.why_not_again);
  if (report.num_restarts() > 0)
    parts.push_back(
        cat("after ", counted_text(report.num_restarts(), "restart")));
  parts.push_back(what_to_do(report));
  parts.push_back(cat("exit ", report.exit_status()));
  return join(parts, kBetween);
}

std::string launch_json(const LaunchReport& report) {
  JsonWriter out(2);
  out.begin_object()
      .field("exit", report.exit_status())
      .field("message", launch_line(report))
      .field("transport", report.transport)
      .field("run", report.run)
      .field("ranks", report.last().num_ranks)
      .field("restarts", report.num_restarts())
      .field("max_restarts", report.max_restarts);
  out.member("last_checkpoint");
  if (report.checkpoint)
    out.value(*report.checkpoint);
  else
    out.null();
  out.member("attempts").begin_array();
  for (const LaunchedAttempt& attempt : report.attempts)
    write_attempt(out, attempt);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona::cli
