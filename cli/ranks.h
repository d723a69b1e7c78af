// The ranks that a verb runs on: threads of this process, or processes that a
// launcher has started, which talk by MPI or over sockets, and by NCCL where
// each has a GPU.
//
//   const auto ranks = make_ranks({.num_ranks = 4});
//   ranks->runner()({}, [&](Communicator& world) { … });
//   ranks->finish();
//   if (ranks->speaks()) out.result(…);
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/comm/lane.h"
#include "canzona/comm/library_memory.h"
#include "canzona/measure/rank_runner.h"
#include "cli/verbs.h"

namespace canzona::cli {

struct RankOptions {
  // "thread", "mpi", "tcp", "nccl", or "": as this process was started.
  std::string transport = {};
  std::string device = "cpu";  // "cuda" with nccl
  // For nccl: whether ranks may share a GPU, and what --nccl-ctas says, or "".
  bool share_gpu = false;
  std::string nccl_ctas = {};
  std::string nccl_memory = {};  // what --nccl-memory says, or ""
  // For tcp: where rank 0 is met, and what tells jobs apart; "": as the
  // launcher says.
  std::string rendezvous = {};
  std::string job_token = {};
  int num_ranks = 1;
  bool links = false;  // that are modelled
  std::string flight_record = {};
  CommunicatorOptions communicator = {};
  Gate* gate = nullptr;  // for tests of faults; outlives the ranks
};

// Says who has started this process as one of several ranks, and how they talk.
struct ProcessLaunch {
  std::string launcher;   // "Open MPI", "torchrun", "canzona launch", …
  std::string transport;  // "mpi" or "tcp"
  int rank = 0;
  int num_ranks = 0;    // 0: it does not say
  int num_local = 0;    // of them, on this machine; 0: it does not say
  int local_rank = -1;  // among those; -1: it does not say
  // Seconds between SIGTERM and SIGKILL; -1: not known.
  int kill_seconds = -1;
};
// Nothing if nobody did. UsageError as from find_mpi_launch() and
// find_tcp_launch().
std::optional<ProcessLaunch> find_process_launch();

class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual std::string transport() const = 0;
  virtual RankRunner runner() = 0;
  // True if this process is the one that prints results.
  virtual bool speaks() const { return true; }
  // Ranks on this machine; the launcher may not tell of processes: 1.
  virtual int num_here() const = 0;
  // A name for a file of this process alone.
  virtual std::string file_name(const std::string& name) const { return name; }
  // Returns what the library behind them takes of this rank's GPU; empty if
  // there is none.
  virtual std::vector<LibraryMemory> library_memory() const { return {}; }
  // The orderly end of all ranks.
  virtual void finish() {}
};

// "30s" → a deadline of collectives; UsageError names --deadline.
std::chrono::nanoseconds parse_deadline(const std::string& text);

// Compares the SHA-256 of what every process was asked to do: UsageError on all
// of them names two that differ. All ranks call it.
void require_same_request(Ranks& ranks, const std::string& digest);

// The same of what every process has found to go on from, in words ("nothing",
// "step 40, manifest 1f2e…"; 200 characters count) and where it looked.
void require_same_resume(Ranks& ranks, const std::string& found,
                         const std::string& folder);

// The same of where the weights of --init were found: the checkpoints of a run
// that is going on come and go.
void require_same_init(Ranks& ranks, const std::string& found);

// Options of a verb that say how its processes meet and share GPUs.
void add_rank_options(CLI::App& app, RankOptions& options);

// True if the library behind these ranks has sums of its own (MPI, NCCL).
bool has_own_sums(const RankOptions& options);

// Makes a lane of a rank's device, for groups whose operations are only issued;
// empty where these ranks have none.
std::function<std::shared_ptr<Lane>()> lanes_of(const std::string& device);

// Returns what the library takes of the rank of which it takes most. All ranks
// call it.
int64_t largest_library_bytes(Ranks& ranks);

// UsageError if the ranks that are there do not fit what is asked. With nccl,
// this process takes its GPU.
std::unique_ptr<Ranks> make_ranks(const RankOptions& options);
// The same GPU, before anything of CUDA is used; nothing without nccl.
void take_own_gpu(const RankOptions& options);
// Before that, too, where ranks are threads: a stream that stops at a modelled
// link must not hold up others, so that each gets a connection to the GPU of
// its own, as far as there are any. A number that the user has set stays.
void give_streams_connections(const std::string& device);

}  // namespace canzona::cli
