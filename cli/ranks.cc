#include "cli/ranks.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <utility>

#include "canzona/base/device_kind.h"
#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/mpi/process_watch.h"
#include "canzona/comm/nccl/nccl_launch.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/nccl/nccl_session.h"
#include "canzona/comm/tcp/tcp_session.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/runtime/engine_lanes.h"
#include "cli/output.h"

namespace canzona::cli {
namespace {

// True while processes are connected and have not ended together: this one must
// leave without waiting for the others.
bool session_is_open = false;

class ThreadRanks : public Ranks {
 public:
  explicit ThreadRanks(const RankOptions& options) : options_(options) {}

  std::string transport() const override { return "thread"; }
  int num_here() const override { return options_.num_ranks; }
  RankRunner runner() override {
    RankRunner threads =
        on_threads(options_.num_ranks, options_.communicator, options_.gate);
    return options_.split_gpu ? with_gpu_shares(std::move(threads)) : threads;
  }

 private:
  RankOptions options_;
};

// The message if MPI does not start, which waits for all ranks.
std::string not_started_words(std::chrono::nanoseconds time) {
  const std::optional<MpiLaunch> launch = find_mpi_launch();
  return cat(launch ? cat("rank ", launch->rank) : "this process",
             ": MPI has not started within ",
             human_seconds(std::chrono::duration<double>(time).count()),
             ": at least one ",
             launch && launch->num_ranks > 0
                 ? cat("of the ", launch->num_ranks, " ranks")
                 : "rank",
             " has not joined");
}

// Processes connected by a session (MpiSession, TcpSession).
template <class Session>
class ProcessRanks : public Ranks {
 public:
  ProcessRanks(const RankOptions& options, const char* transport,
               int ranks_here)
      : options_(options), transport_(transport), ranks_here_(ranks_here) {}

  std::string transport() const override { return transport_; }
  bool speaks() const override { return session().rank() == 0; }
  int num_here() const override { return std::max(1, ranks_here_); }
  std::string file_name(const std::string& name) const override {
    std::filesystem::path path(name);
    path.replace_extension(
        cat(".", session().rank(), path.extension().string()));
    return path.string();
  }
  RankRunner runner() override {
    return [this](const Link&, const RankFunction& function) {
      Communicator world(make_world(), cpu_wire_ops(), options_.communicator,
                         "world");
      try {
        function(world);
      } catch (const std::exception& error) {
        abort(cat("rank ", session().rank(), " failed: ", error.what()));
        throw;
      }
    };
  }
  void finish() override {
    session().finish(options_.communicator.deadline);
    session_is_open = false;
  }

 protected:
  virtual std::unique_ptr<Transport> make_world() {
    return session().make_world(options_.communicator.deadline);
  }
  virtual void abort(const std::string& reason) { session().abort(reason); }
  void open(std::unique_ptr<Session> session) {
    session_ = std::move(session);
    session_is_open = true;
  }
  Session& session() const { return *session_; }
  const RankOptions& options() const { return options_; }

 private:
  RankOptions options_;
  const char* transport_;
  int ranks_here_;
  std::unique_ptr<Session> session_;
};

class MpiRanks : public ProcessRanks<MpiSession> {
 public:
  MpiRanks(const RankOptions& options, int ranks_here)
      : ProcessRanks(options, "mpi", ranks_here) {
    {
      const std::chrono::nanoseconds time = options.communicator.deadline;
      const TimeLimit limit(time, [time] { return not_started_words(time); });
      open(std::make_unique<MpiSession>(MpiOptions{.gate = options.gate}));
    }
    if (session().size() != options.num_ranks)
      throw UsageError(cat("the mesh has ",
                           counted_text(options.num_ranks, "rank"),
                           ", but MPI started ", session().size(),
                           "; start it with mpirun -n ", options.num_ranks));
  }

  // The session stays open, so that end_compute() leaves at once.
  void finish_after_signal() override {
    session().finish_unfinalized(options().communicator.deadline);
  }
};

class TcpRanks : public ProcessRanks<TcpSession> {
 public:
  TcpRanks(const RankOptions& options, const TcpLaunch& launch)
      : ProcessRanks(options, "tcp", launch.num_local) {
    if (launch.num_ranks != options.num_ranks)
      throw UsageError(cat("the mesh has ",
                           counted_text(options.num_ranks, "rank"), ", but ",
                           launch.launcher, " started ", launch.num_ranks));
    open(std::make_unique<TcpSession>(TcpOptions{
        .meeting = meeting_of(options, launch),
        .rank = launch.rank,
        .num_ranks = launch.num_ranks,
        .num_local = launch.num_local,
        .token = options.job_token.empty() ? launch.token : options.job_token,
        .time = options.communicator.deadline,
        .gate = options.gate}));
  }

 private:
  static Endpoint meeting_of(const RankOptions& options,
                             const TcpLaunch& launch) {
    if (!options.rendezvous.empty()) return parse_endpoint(options.rendezvous);
    if (launch.meeting.host.empty())
      throw UsageError(
          cat(launch.launcher,
              " does not say where the ranks meet; give --rendezvous HOST:PORT "
              "with an address of rank 0's machine"));
    return launch.meeting;
  }
};

// Processes connected as in `Base`, each with a GPU.
template <class Base>
class NcclRanks final : public Base {
 public:
  template <class Launch>
  NcclRanks(const RankOptions& options, const Launch& launch)
      : Base(options, launch) {
    nccl_ = std::make_unique<NcclSession>(
        this->session().make_world(options.communicator.deadline), load_nccl(),
        nccl_options(options));
  }

  std::string transport() const override { return "nccl"; }
  bool shares_gpu() const override { return this->options().share_gpu; }
  void finish() override {
    finish_nccl();
    Base::finish();
  }
  void finish_after_signal() override {
    finish_nccl();
    Base::finish_after_signal();
  }

 private:
  void finish_nccl() {
    nccl_->finish(this->options().communicator.deadline);
    nccl_.reset();
  }
  static NcclOptions nccl_options(const RankOptions& options) {
    std::string why_not;
    const auto gpu = find_cuda_device(&why_not);
    if (!gpu) throw UsageError(cat("--transport nccl: ", why_not));
    NcclOptions own;
    own.device = gpu->name;
    // A plain number means a different GPU in every cgroup.
    const char* id = environment_variable("CUDA_VISIBLE_DEVICES");
    if (id != nullptr && std::string_view(id).starts_with("GPU-"))
      own.device_id = cat(host_name(), " ", id);
    own.share_devices = options.share_gpu;
    own.free_memory = cuda_free_bytes;
    own.deadline = options.communicator.deadline;
    own.end_process = [](const std::string& why) {
      std::cerr << "error: " << why << "\n";
      exit_at_once(ExitStatus::kPeerLost);
    };
    return own;
  }

  std::unique_ptr<Transport> make_world() override {
    return nccl_->make_world();
  }
  void abort(const std::string& reason) override { nccl_->abort(reason); }

  std::unique_ptr<NcclSession> nccl_;  // must end before the other session
};

// All ranks of this process write to one file, one after the other.
void write_flights_to(const std::string& path, CommunicatorOptions& options) {
  auto mutex = std::make_shared<std::mutex>();
  options.on_failure = [path, mutex](const FlightRecord& record) {
    const std::lock_guard lock(*mutex);
    std::ofstream file(path, std::ios::app);
    record.write(file);
    file.flush();
    if (!file)
      std::cerr << "note: cannot write the last operations of a rank to "
                << printable(path) << "\n";
  };
}

const std::vector<std::string>& transports() {
  static const std::vector<std::string> all = {"auto", "thread", "mpi", "tcp",
                                               "nccl"};
  return all;
}

std::string transport_of(const RankOptions& options,
                         const std::optional<ProcessLaunch>& launch) {
  const std::string wanted =
      options.transport == "auto" ? "" : options.transport;
  if (wanted.empty() && launch && device_kind(options.device).has_own_memory)
    return "nccl";
  if (wanted.empty()) return launch ? launch->transport : "thread";
  if (std::ranges::find(transports(), wanted) == transports().end())
    throw UsageError(cat("--transport ", quoted(wanted),
                         ": expected auto, thread, mpi, tcp or nccl",
                         did_you_mean(wanted, transports())));
  if (wanted == "thread" && launch && launch->num_ranks != 1)
    throw UsageError(cat("--transport thread: ", launch->launcher,
                         " started several processes, each of which would run "
                         "all ranks; start one, or use ",
                         launch->transport));
  return wanted;
}

TcpLaunch required_tcp_launch() {
  if (std::optional<TcpLaunch> launch = find_tcp_launch()) return *launch;
  throw UsageError(
      "--transport tcp: this process was not started as a rank; use "
      "torchrun --no-python, srun, or set CANZONA_RANK, CANZONA_NUM_RANKS and "
      "CANZONA_RENDEZVOUS (docs/tcp.md)");
}

// Throws UsageError unless this process can be an NCCL rank.
ProcessLaunch required_nccl_launch(const RankOptions& options,
                                   const std::optional<ProcessLaunch>& launch) {
  if (!device_kind(options.device).has_own_memory)
    throw UsageError(cat(
        "--transport nccl requires GPU memory: expected --device cuda, found ",
        options.device));
  if (!launch)
    throw UsageError(
        "--transport nccl: this process was not started as a rank, and NCCL "
        "needs one process per GPU; use mpirun, srun or torchrun "
        "--no-python (docs/nccl.md), or --transport thread");
  return *launch;
}

void refuse_idle_split(const RankOptions& options,
                       const std::string& transport) {
  if (options.split_gpu &&
      (transport != "thread" || !device_kind(options.device).has_own_memory))
    throw UsageError(cat(
        "--split-gpu is only valid with --device cuda and --transport thread, "
        "whose ranks share a GPU: found ",
        options.device, " and ", transport));
}

// Finds what has started this process, even if only --transport says that ranks
// are to meet.
std::optional<ProcessLaunch> find_launch_for(const RankOptions& options) {
  std::optional<ProcessLaunch> launch = find_process_launch();
  if (launch || options.transport != "nccl" || options.rendezvous.empty())
    return launch;
  if (const std::optional<TcpLaunch> tcp = find_tcp_launch())
    launch = ProcessLaunch{tcp->launcher,  "tcp",          tcp->rank,
                           tcp->num_ranks, tcp->num_local, tcp->local_rank};
  return launch;
}

// The words of a process that differ from rank 0's.
struct OtherWords {
  std::string first;  // rank 0's
  int64_t rank = 0;
  std::string words;
};

// Returns nothing if all processes say the same; otherwise all of them have
// ended together.
std::optional<OtherWords> find_other_words(Ranks& ranks,
                                           const std::string& words) {
  if (ranks.transport() == "thread") return {};
  struct Said {
    std::array<char, 200> text{};
  };
  Said own;
  std::ranges::copy(words.substr(0, own.text.size()), own.text.begin());
  std::vector<Said> all;
  ranks.runner()({},
                 [&](Communicator& world) { all = one_from_all(world, own); });
  const auto other = std::ranges::find_if(
      all, [&](const Said& there) { return there.text != all[0].text; });
  if (other == all.end()) return {};
  const auto text = [](const Said& of) {
    return std::string(of.text.begin(), std::ranges::find(of.text, '\0'));
  };
  ranks.finish();
  return OtherWords{text(all[0]), other - all.begin(), text(*other)};
}

}  // namespace

OptionRow transport_option(std::string& transport, const std::string& what) {
  return option("--transport", transport, "KIND",
                cat("auto, thread, mpi, tcp or nccl", what))
      .offering(transports())
      .by_default("the launcher's; else nccl on cuda, thread on cpu");
}

OptionRow deadline_option(std::string& deadline) {
  return option("--deadline", deadline, "TIME",
                "time limit of every collective; exceeding it ends with exit "
                "status 4")
      .by_default("10min");
}

OptionRows meeting_options(RankOptions& a) {
  return in_group(
      "Processes and GPUs",
      {option("--rendezvous", a.rendezvous, "HOST:PORT",
              "tcp, nccl under srun: address of rank 0, where all ranks meet"),
       option("--job-token", a.job_token, "TEXT",
              "tcp, nccl under srun: distinguishes this job from others")
           .by_default("the launcher's"),
       flag("--share-gpu", a.share_gpu,
            "nccl: let ranks share a GPU, for tests"),
       flag("--split-gpu", a.split_gpu,
            "thread: give each rank an equal share of the GPU's "
            "multiprocessors, as if it had a smaller GPU of its own")});
}

std::function<std::shared_ptr<Lane>()> lanes_of(const std::string& device) {
  if (!device_kind(device).has_own_memory) return {};
  return [device] {
    return std::make_shared<EngineLane>(make_engine(device)->make_lane());
  };
}

void begin_compute(char** argv) { restart_with_blas_core(argv); }

int end_compute(int status) {
  if (session_is_open) exit_at_once(status);
  return status;
}

std::chrono::nanoseconds parse_deadline(const std::string& text) {
  const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(parse_duration(text, "--deadline")));
  if (deadline.count() <= 0)
    throw UsageError(cat("--deadline ", quoted(text),
                         ": expected a time above 0, such as 30s"));
  return deadline;
}

// Slurm alone does not mean that ranks communicate over sockets: programs are
// started there in many ways.
std::optional<ProcessLaunch> find_process_launch() {
  if (const std::optional<MpiLaunch> mpi = find_mpi_launch())
    return ProcessLaunch{mpi->launcher,    "mpi",          mpi->rank,
                         mpi->num_ranks,   mpi->num_local, mpi->local_rank,
                         mpi->kill_seconds};
  const std::optional<TcpLaunch> tcp = find_tcp_launch();
  if (!tcp || tcp->meeting.host.empty()) return {};
  return ProcessLaunch{tcp->launcher,  "tcp",          tcp->rank,
                       tcp->num_ranks, tcp->num_local, tcp->local_rank};
}

// CUDA reads the variable once, when it starts, and sees only one GPU from then
// on.
void take_own_gpu(const RankOptions& options) {
  const std::optional<ProcessLaunch> found = find_launch_for(options);
  if (transport_of(options, found) != "nccl") return;
  static bool taken = false;
  if (std::exchange(taken, true)) return;
  const ProcessLaunch launch = required_nccl_launch(options, found);
  const NcclApi& nccl = load_nccl();
  const std::vector<std::string> gpus =
      visible_gpus(environment_variable("CUDA_VISIBLE_DEVICES"), all_gpus());
  const int gpu = choose_gpu({std::max(launch.local_rank, 0), launch.num_local},
                             static_cast<int>(gpus.size()), options.share_gpu);
  set_environment_variable("CUDA_VISIBLE_DEVICES",
                           gpus[static_cast<size_t>(gpu)]);
  for (const auto& [name, value] : nccl_settings({.host = host_name(),
                                   .rank = launch.rank,
                                   .share = options.share_gpu,
                                   .version = nccl_version_of(nccl)},
                                                 environment_variable))
    set_environment_variable(name, value);
}

void give_streams_connections(const std::string& device) {
  constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
  if (device_kind(device).has_own_memory &&
      environment_variable(kConnections) == nullptr)
    set_environment_variable(kConnections, "32");
}

namespace {

// Makes the kernel kill this rank when its launcher dies: torchrun that was
// killed would leave ranks behind that go on. Both launchers give each process
// that they start a group of its own. Where a script stands between them and
// the rank, the script is the parent, and may end before a rank that is saving.
void end_with_launcher(const ProcessLaunch& launch) {
  const bool starts_groups =
      launch.transport == "mpi" || launch.launcher == "torchrun";
  if (starts_groups && ::getpgrp() == ::getpid())
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// Only sockets need a place to meet, and a token.
void refuse_idle_meeting(const RankOptions& options,
                         const std::string& transport) {
  for (const auto& [name, value] :
       {std::pair("--rendezvous", options.rendezvous),
        std::pair("--job-token", options.job_token)})
    if (!value.empty())
      throw UsageError(cat(name, ": ranks that communicate by ", transport,
                           " do not use it; leave it out, or use --transport "
                           "tcp"));
}

}  // namespace

std::unique_ptr<Ranks> make_ranks(const RankOptions& options) {
  RankOptions own = options;
  const std::optional<ProcessLaunch> launch = find_launch_for(options);
  if (launch) end_with_launcher(*launch);
  const std::string transport = transport_of(options, launch);
  if (transport != "thread" && options.links)
    throw UsageError(
        "--link and --comm-ratio are only valid with --transport thread: links "
        "are modelled between threads");
  refuse_idle_split(options, transport);
  const bool nccl = transport == "nccl";
  if (nccl) take_own_gpu(options);
  if (!nccl && options.share_gpu)
    throw UsageError("--share-gpu is only valid with --transport nccl");
  const std::string control = nccl ? launch->transport : transport;
  std::optional<TcpLaunch> tcp;
  if (control == "tcp")
    tcp = required_tcp_launch();
  else
    refuse_idle_meeting(options, control);
  std::string& flights = own.flight_record;
  if (transport != "thread" && !flights.empty() && (tcp || launch))
    flights += cat(".", tcp ? tcp->rank : launch->rank);
  if (!flights.empty()) write_flights_to(flights, own.communicator);
  const int num_local = launch ? launch->num_local : 1;
  if (nccl && tcp) return std::make_unique<NcclRanks<TcpRanks>>(own, *tcp);
  if (nccl) return std::make_unique<NcclRanks<MpiRanks>>(own, num_local);
  if (tcp) return std::make_unique<TcpRanks>(own, *tcp);
  if (transport == "mpi") return std::make_unique<MpiRanks>(own, num_local);
  return std::make_unique<ThreadRanks>(own);
}

void require_same_request(Ranks& ranks, const std::string& digest) {
  const std::optional<OtherWords> other = find_other_words(ranks, digest);
  if (!other) return;
  throw UsageError(
      cat("the ranks have different configurations: rank 0 has digest ",
          other->first, ", rank ", other->rank, " has ", other->words,
          "; give all ranks the same options"));
}

void require_same_init(Ranks& ranks, const std::string& found) {
  // Compares the end of the path, which is where paths differ.
  constexpr size_t kCompared = 200;
  const std::optional<OtherWords> other = find_other_words(
      ranks, found.substr(found.size() - std::min(found.size(), kCompared)));
  if (!other) return;
  throw UsageError(
      cat("--init: the ranks found different weights: rank 0 found ",
          printable(other->first), ", rank ", other->rank, " found ",
          printable(other->words), "; name one checkpoint, RUN/ckpt/step_N"));
}

void require_same_resume(Ranks& ranks, const std::string& found,
                         const std::string& folder) {
  const std::optional<OtherWords> other = find_other_words(ranks, found);
  if (!other) return;
  throw UsageError(
      cat("--resume: the ranks found different checkpoints: rank 0 found ",
          other->first, ", rank ", other->rank, " found ", other->words,
          "; all ranks need the same --resume and must see the same folder",
          folder.empty() ? "" : cat(" ", quoted(folder))));
}

}  // namespace canzona::cli
