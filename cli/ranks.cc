#include "cli/ranks.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/exit_status.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/tcp/tcp_launch.h"
#include "canzona/comm/tcp/tcp_session.h"
#include "canzona/comm/transport.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

// True while processes are joined and have not ended together: this one must
// leave without waiting for the others.
bool session_is_open = false;

class ThreadRanks : public Ranks {
 public:
  explicit ThreadRanks(const RankOptions& options) : options_(options) {}

  std::string transport() const override { return "thread"; }
  int num_here() const override { return options_.num_ranks; }
  RankRunner runner() override {
    return on_threads(options_.num_ranks, options_.communicator, options_.gate);
  }

 private:
  RankOptions options_;
};

// MPI starts in a call that waits for all ranks, without a deadline. Where one
// never comes, this process ends with words instead of waiting for ever.
class StartWatch {
 public:
  explicit StartWatch(std::chrono::nanoseconds time)
      : thread_([this, time] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_until(lock, deadline_after(time),
                                  [this] { return started_; }))
            return;
          const std::optional<MpiLaunch> launch = find_mpi_launch();
          std::cerr << "error: "
                    << (launch ? cat("rank ", launch->rank) : "this process")
                    << ": MPI has not started within "
                    << human_seconds(
                           std::chrono::duration<double>(time).count())
                    << ": at least one "
                    << (launch && launch->num_ranks > 0
                            ? cat("of the ", launch->num_ranks, " ranks")
                            : "rank")
                    << " has not come\n";
          exit_at_once(ExitStatus::kPeerLost);
        }) {}
  ~StartWatch() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it uses the others
};

// Processes that a session (MpiSession, TcpSession) has brought together.
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
      Communicator world(session().make_world(options_.communicator.deadline),
                         cpu_wire_ops(), options_.communicator, "world");
      try {
        function(world);
      } catch (const std::exception& error) {
        session().abort(
            cat("rank ", session().rank(), " failed: ", error.what()));
        throw;
      }
    };
  }
  void finish() override {
    session().finish(options_.communicator.deadline);
    session_is_open = false;
  }

 protected:
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
      const StartWatch watch(options.communicator.deadline);
      open(std::make_unique<MpiSession>(MpiOptions{.gate = options.gate}));
    }
    if (session().size() != options.num_ranks)
      throw UsageError(cat("the mesh has ", options.num_ranks,
                           " ranks, but MPI has started ", session().size(),
                           "; start it with mpirun -n ", options.num_ranks));
  }
};

class TcpRanks : public ProcessRanks<TcpSession> {
 public:
  TcpRanks(const RankOptions& options, const TcpLaunch& launch)
      : ProcessRanks(options, "tcp", launch.num_local) {
    if (launch.num_ranks != options.num_ranks)
      throw UsageError(cat("the mesh has ", options.num_ranks, " ranks, but ",
                           launch.launcher, " has started ", launch.num_ranks));
    open(std::make_unique<TcpSession>(TcpOptions{
        .meeting = meeting_of(options, launch),
        .rank = launch.rank,
        .num_ranks = launch.num_ranks,
        .token = options.job_token.empty() ? launch.token : options.job_token,
        .time = options.communicator.deadline,
        .gate = options.gate}));
  }

 private:
  static Endpoint meeting_of(const RankOptions& options,
                             const TcpLaunch& launch) {
    if (!options.rendezvous.empty()) return parse_endpoint(options.rendezvous);
    if (launch.meeting.host.empty())
      throw UsageError(cat(launch.launcher,
                           " does not say where the ranks meet: --rendezvous "
                           "HOST:PORT, an address of rank 0's machine"));
    return launch.meeting;
  }
};

// All ranks of this process write to one file, one after the other.
void write_flights_to(const std::string& path, CommunicatorOptions& options) {
  auto mutex = std::make_shared<std::mutex>();
  options.on_failure = [path, mutex](const FlightRecord& record) {
    const std::lock_guard lock(*mutex);
    std::ofstream file(path, std::ios::app);
    record.write(file);
  };
}

std::string transport_of(const RankOptions& options,
                         const std::optional<ProcessLaunch>& launch) {
  const std::string& wanted = options.transport;
  if (wanted.empty()) return launch ? launch->transport : "thread";
  const std::vector<std::string> known = {"thread", "mpi", "tcp"};
  if (std::ranges::find(known, wanted) == known.end())
    throw UsageError(cat("--transport ", quoted(wanted),
                         ": expected thread, mpi or tcp",
                         did_you_mean(wanted, known)));
  if (wanted == "thread" && launch && launch->num_ranks != 1)
    throw UsageError(cat("--transport thread: ", launch->launcher,
                         " has started several processes, each of which would "
                         "run all ranks; start one, or use ",
                         launch->transport));
  return wanted;
}

TcpLaunch required_tcp_launch() {
  if (std::optional<TcpLaunch> launch = find_tcp_launch()) return *launch;
  throw UsageError(
      "--transport tcp: nobody has started this process as a rank; use canzona "
      "launch, torchrun --no-python, srun, or set CANZONA_RANK, "
      "CANZONA_NUM_RANKS and CANZONA_RENDEZVOUS (docs/tcp.md)");
}

// Words of a process that are not those of rank 0.
struct OtherWords {
  std::string first;  // those of rank 0
  int64_t rank = 0;
  std::string words;
};

// Nothing if all processes say the same; else all of them have ended together.
std::optional<OtherWords> find_other_words(Ranks& ranks,
                                           const std::string& words) {
  if (ranks.transport() == "thread") return {};
  struct Words {
    std::array<char, 200> text{};
  };
  Words own;
  std::ranges::copy(words.substr(0, own.text.size()), own.text.begin());
  std::vector<Words> all;
  ranks.runner()({},
                 [&](Communicator& world) { all = one_from_all(world, own); });
  const auto other = std::ranges::find_if(
      all, [&](const Words& there) { return there.text != all[0].text; });
  if (other == all.end()) return {};
  const auto text = [](const Words& of) {
    return std::string(of.text.begin(), std::ranges::find(of.text, '\0'));
  };
  ranks.finish();
  return OtherWords{text(all[0]), other - all.begin(), text(*other)};
}

}  // namespace

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

// Slurm alone does not mean that ranks are to talk over sockets: programs are
// started there in many ways.
std::optional<ProcessLaunch> find_process_launch() {
  if (const std::optional<MpiLaunch> mpi = find_mpi_launch())
    return ProcessLaunch{mpi->launcher,  "mpi",          mpi->rank,
                         mpi->num_ranks, mpi->num_local, mpi->kill_seconds};
  const std::optional<TcpLaunch> tcp = find_tcp_launch();
  if (!tcp || tcp->meeting.host.empty()) return {};
  return ProcessLaunch{tcp->launcher, "tcp", tcp->rank, tcp->num_ranks,
                       tcp->num_local};
}

std::unique_ptr<Ranks> make_ranks(const RankOptions& options) {
  RankOptions own = options;
  const std::optional<ProcessLaunch> launch = find_process_launch();
  const std::string transport = transport_of(options, launch);
  if (transport != "thread" && options.links)
    throw UsageError(
        "links are modelled between threads only: --link and --comm-ratio go "
        "with --transport thread");
  std::optional<TcpLaunch> tcp;
  if (transport == "tcp") tcp = required_tcp_launch();
  std::string& flights = own.flight_record;
  if (transport != "thread" && !flights.empty() && (tcp || launch))
    flights += cat(".", tcp ? tcp->rank : launch->rank);
  if (!flights.empty()) write_flights_to(flights, own.communicator);
  if (tcp) return std::make_unique<TcpRanks>(own, *tcp);
  if (transport == "mpi")
    return std::make_unique<MpiRanks>(own, launch ? launch->num_local : 1);
  return std::make_unique<ThreadRanks>(own);
}

void require_same_request(Ranks& ranks, const std::string& digest) {
  const std::optional<OtherWords> other = find_other_words(ranks, digest);
  if (!other) return;
  throw UsageError(
      cat("the ranks were not asked to do the same: rank 0 has "
          "configuration ",
          other->first, ", rank ", other->rank, " has ", other->words,
          "; give all of them the same options"));
}

void require_same_resume(Ranks& ranks, const std::string& found,
                         const std::string& folder) {
  const std::optional<OtherWords> other = find_other_words(ranks, found);
  if (!other) return;
  throw UsageError(
      cat("--resume: the ranks do not go on from the same: rank 0 has found ",
          other->first, ", rank ", other->rank, " has found ", other->words,
          "; all ranks must be given the same --resume and see the same folder",
          folder.empty() ? "" : cat(" ", quoted(folder))));
}

}  // namespace canzona::cli
