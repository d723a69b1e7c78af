// The ranks that a verb runs on: threads of this process, or processes started
// by a launcher, which communicate by MPI or sockets, and by NCCL if each has a
// GPU.
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

#include "canzona/comm/transport.h"
#include "canzona/measure/rank_runner.h"
#include "cli/verbs.h"

namespace canzona::cli {

struct RankOptions {
  // "thread", "mpi", "tcp", "nccl", or "" to follow how this process was
  // started.
  std::string transport = {};
  std::string device = "cpu";  // "cuda" with nccl
  bool share_gpu = false;  // for nccl: ranks may share a GPU
  bool split_gpu = false;  // for thread: each rank has its share of the GPU
  // For tcp: where rank 0 listens, and what distinguishes jobs; "": from the
  // launcher.
  std::string rendezvous = {};
  std::string job_token = {};
  int num_ranks = 1;
  bool links = false;  // links are modelled
  std::string flight_record = {};
  CommunicatorOptions communicator = {};
  Gate* gate = nullptr;  // for fault tests; must outlive the ranks
};

// Says which launcher has started this process as one of several ranks, and how
// they communicate.
struct ProcessLaunch {
  std::string launcher;   // "Open MPI", "torchrun", …
  std::string transport;  // "mpi" or "tcp"
  int rank = 0;
  int num_ranks = 0;    // 0: unknown
  int num_local = 0;    // on this machine; 0: unknown
  int local_rank = -1;  // on this machine; -1: unknown
  // Seconds between SIGTERM and SIGKILL; -1: not known.
  int kill_seconds = -1;
};
// Returns nothing if no launcher did. Throws UsageError like find_mpi_launch()
// and find_tcp_launch().
std::optional<ProcessLaunch> find_process_launch();

class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual std::string transport() const = 0;
  virtual RankRunner runner() = 0;
  // True if this process is the one that prints results.
  virtual bool speaks() const { return true; }
  // The number of ranks on this machine; 1 if the launcher of processes does
  // not say.
  virtual int num_here() const = 0;
  // Returns a name for a file that only this process writes.
  virtual std::string file_name(const std::string& name) const { return name; }
  // True if several processes use one GPU.
  virtual bool shares_gpu() const { return false; }
  // Ends all ranks in an orderly way.
  virtual void finish() {}
  // The same if a signal has ended the run, which may have come from a launcher
  // that ends all ranks.
  virtual void finish_after_signal() { finish(); }
};

// Parses "30s" as a deadline of collectives; UsageError names --deadline.
std::chrono::nanoseconds parse_deadline(const std::string& text);

// Compares the SHA-256 of every process's request: UsageError on all of them
// names two that differ. All ranks must call it.
void require_same_request(Ranks& ranks, const std::string& digest);

// The same for what every process has found to resume from, as text ("nothing",
// "step 40, manifest 1f2e…"; the first 200 characters count), and where it
// looked.
void require_same_resume(Ranks& ranks, const std::string& found,
                         const std::string& folder);

// The same for where the weights of --init were found, since the checkpoints of
// a running run come and go.
void require_same_init(Ranks& ranks, const std::string& found);

// The options of verbs that run on ranks: how processes meet and share GPUs,
// what moves data between ranks (`what` follows the words), and how long a
// collective may take.
OptionRows meeting_options(RankOptions& options);
OptionRow transport_option(std::string& transport, const std::string& what);
OptionRow deadline_option(std::string& deadline);

// Returns a function that makes a lane of a rank's device, for groups whose
// operations are enqueued; empty if these ranks have none.
std::function<std::shared_ptr<Lane>()> lanes_of(const std::string& device);

// Throws UsageError if the existing ranks do not match the request. With nccl,
// this process takes its GPU.
std::unique_ptr<Ranks> make_ranks(const RankOptions& options);
// Takes the same GPU before anything of CUDA is used; does nothing without
// nccl.
void take_own_gpu(const RankOptions& options);
// Also called before CUDA is used, if ranks are threads: a stream that waits
// for a modelled link must not block others, so each gets its own hardware
// connection to the GPU, as far as there are any. A number that the user has
// set is kept.
void give_streams_connections(const std::string& device);

}  // namespace canzona::cli
