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
#include "canzona/comm/transport.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

// True while processes are joined and have not ended together: this one must
// leave without waiting for the others.
bool mpi_is_open = false;

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

class MpiRanks : public Ranks {
 public:
  explicit MpiRanks(const RankOptions& options)
      : options_(options),
        watch_(options.communicator.deadline),
        session_({.gate = options.gate}) {
    watch_.stop();
    mpi_is_open = true;
    if (session_.size() != options.num_ranks)
      throw UsageError(cat("the mesh has ", options.num_ranks,
                           " ranks, but MPI has started ", session_.size(),
                           "; start it with mpirun -n ", options.num_ranks));
  }

  std::string transport() const override { return "mpi"; }
  bool speaks() const override { return session_.rank() == 0; }
  int num_here() const override {
    const std::optional<MpiLaunch> launch = find_mpi_launch();
    return launch ? std::max(1, launch->num_local) : 1;
  }
  std::string file_name(const std::string& name) const override {
    std::filesystem::path path(name);
    path.replace_extension(
        cat(".", session_.rank(), path.extension().string()));
    return path.string();
  }
  RankRunner runner() override {
    return [this](const Link&, const RankFunction& function) {
      Communicator world(session_.make_world(options_.communicator.deadline),
                         cpu_wire_ops(), options_.communicator, "world");
      try {
        function(world);
      } catch (const std::exception& error) {
        session_.abort(
            cat("rank ", session_.rank(), " failed: ", error.what()));
        throw;
      }
    };
  }
  void finish() override {
    session_.finish(options_.communicator.deadline);
    mpi_is_open = false;
  }

 private:
  RankOptions options_;
  StartWatch watch_;
  MpiSession session_;
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
                         const std::optional<MpiLaunch>& launch) {
  const std::string& wanted = options.transport;
  if (wanted.empty()) return launch ? "mpi" : "thread";
  if (wanted != "thread" && wanted != "mpi")
    throw UsageError(cat("--transport ", quoted(wanted),
                         ": expected thread or mpi",
                         did_you_mean(wanted, {"thread", "mpi"})));
  if (wanted == "thread" && launch && launch->num_ranks != 1)
    throw UsageError(cat("--transport thread: ", launch->launcher,
                         " has started several processes, each of which would "
                         "run all ranks; start one, or use mpi"));
  return wanted;
}

}  // namespace

void begin_compute(char** argv) { restart_with_blas_core(argv); }

int end_compute(int status) {
  if (mpi_is_open) exit_at_once(status);
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

std::unique_ptr<Ranks> make_ranks(const RankOptions& options) {
  RankOptions own = options;
  const std::optional<MpiLaunch> launch = find_mpi_launch();
  const bool mpi = transport_of(options, launch) == "mpi";
  if (mpi && options.links)
    throw UsageError(
        "links are modelled between threads only: --link and --comm-ratio go "
        "with --transport thread");
  std::string& flights = own.flight_record;
  if (mpi && launch && !flights.empty()) flights += cat(".", launch->rank);
  if (!flights.empty()) write_flights_to(flights, own.communicator);
  if (mpi) return std::make_unique<MpiRanks>(own);
  return std::make_unique<ThreadRanks>(own);
}

void require_same_request(Ranks& ranks, const std::string& digest) {
  if (ranks.transport() == "thread") return;
  struct Digest {
    std::array<char, 64> text{};
  };
  Digest own;
  std::ranges::copy(digest.substr(0, own.text.size()), own.text.begin());
  std::vector<Digest> all;
  ranks.runner()({},
                 [&](Communicator& world) { all = one_from_all(world, own); });
  const auto other = std::ranges::find_if(
      all, [&](const Digest& there) { return there.text != all[0].text; });
  if (other == all.end()) return;
  const auto text = [](const Digest& of) {
    return std::string(of.text.begin(), of.text.end());
  };
  ranks.finish();
  throw UsageError(
      cat("the ranks were not asked to do the same: rank 0 has "
          "configuration ",
          text(all[0]), ", rank ", other - all.begin(), " has ", text(*other),
          "; give all of them the same options"));
}

}  // namespace canzona::cli
