// An MpiWorld is shared by the groups of one process: the word that ends them
// all, the watch over other processes, and the gate to MPI. For this folder's
// sources.
//
// A group is a number that no other group of its ranks has, and messages carry
// it in their tags. A communicator of MPI for each would do as well, but its
// founding waits without a deadline, and Open MPI 4.1 loses messages if another
// thread polls meanwhile.
//
// After a failure, messages may be under way that MPI cannot take back: it
// would still read and write their buffers whenever anybody calls it. So nobody
// does: the gate is closed for good before the operation that failed returns,
// and its buffers are its caller's again. MPI is never finalised then.
//
// Any thread may call.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/mpi/call_watch.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/mpi/process_watch.h"
#include "canzona/comm/transport.h"

namespace canzona {

// The kinds of a group's messages, as their tags have them.
enum class MpiKind : int { kMessage, kContinuation, kLeaving };
inline constexpr int kNumMpiKinds = 3;

// PeerLost with MPI's words if a call has failed: what fails is a connection.
void require_mpi(int result, const char* call);

class MpiWorld {
 public:
  // MPI is running, and every rank calls it at the same time.
  explicit MpiWorld(const MpiOptions& options);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  const MpiOptions& options() const { return options_; }
  // The messages of all groups pass through this communicator.
  MPI_Comm messages() const { return messages_; }
  // Numbers of groups end here.
  int64_t most_groups() const { return most_groups_; }

  // For whoever founds a group: holds the number of the last one. Groups are
  // founded one after the other. PeerLost if that takes too long.
  std::unique_lock<std::timed_mutex> lock_founding(Deadline until);
  int64_t last_group = 0;

  // Calls a function that uses MPI; false, and no call, once the gate is
  // closed.
  template <class Function>
  bool call_mpi(Function function) {
    std::shared_lock lock(gate_);
    if (closed_) return false;
    const CallWatch::Call call(*call_watch_);
    function();
    return true;
  }

  // Tells all ranks, then closes the gate.
  void abort(std::string_view reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string abort_reason() const;

  // Whoever waits calls this now and then: reads whether another rank has
  // aborted, and aborts if one is gone.
  void look();
  // For whoever has seen that a rank left or ended: waits a moment for its
  // last words. True if the world is aborted.
  bool listen();

  // A communicator of MPI for some ranks, who all call it with the same tag;
  // nobody else of this process uses MPI meanwhile. PeerLost if they do not
  // come. It stays until MPI ends.
  MPI_Comm found(const std::vector<int>& ranks, int tag, Deadline until);

  // A message that nobody waits for.
  using Letter = std::array<int64_t, 2>;
  void send_letter(int to, int tag, const Letter& letter);

  // After the last operation of all ranks.
  void finalize();
  // Why MPI may not return, for the user: "rank 2 is stopped (process 4711 on
  // node7)". Only ranks of this machine can be named. Any thread.
  std::string missing_ranks() const;

 private:
  using Notice = std::array<char, 512>;
  struct Sent {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void meet_everyone();
  std::string name_of_process(int rank) const;
  bool set_reason(std::string_view reason);
  void send_notices(std::string_view reason);
  // For whoever holds looking_.
  bool read_notice();
  bool hear();

  MpiOptions options_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::vector<std::string> nodes_;
  std::vector<int64_t> processes_;
  int64_t most_groups_ = 0;
  std::timed_mutex founding_;

  std::shared_mutex gate_;
  bool closed_ = false;  // changes under the gate's exclusive lock

  std::atomic<bool> aborted_ = false;
  mutable std::mutex reason_mutex_;
  std::string reason_;

  std::mutex looking_;  // of all below
  ProcessWatch watch_;
  std::chrono::steady_clock::time_point next_watch_;
  Notice arriving_{};
  MPI_Request notice_ = MPI_REQUEST_NULL;

  std::mutex letters_mutex_;
  std::list<Sent> letters_;

  std::unique_ptr<CallWatch> call_watch_;  // last: its thread uses the others
};

}  // namespace canzona
