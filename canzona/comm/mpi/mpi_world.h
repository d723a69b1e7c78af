// An MpiWorld is shared by the groups of one process: it has the abort state,
// the watch over other processes, and the gate to MPI. Internal to this folder.
//
// A group is a number, unique among the groups of its ranks, which messages
// carry in their tags. An MPI communicator for each would do as well, but
// creating one blocks without a deadline, and Open MPI 4.1 loses messages if
// another thread polls meanwhile.
//
// After a failure, messages may be in flight that MPI cannot cancel: it would
// still read and write their buffers whenever it is called. So the gate is
// closed for good before the failed operation returns, after which its buffers
// belong to the caller again. MPI is never finalized then.
//
// Any thread may call.
#pragma once

#include <mpi.h>
#include <poll.h>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/transport.h"

namespace canzona {

// Detects that other processes of this machine have ended, for whatever reason,
// or are stopped.
//
//   ProcessWatch watch;
//   watch.add(rank, pid);          // where place_of_process() is equal
//   if (watch.first_ended() >= 0) …
//
// One thread at a time; const functions may be called by any thread once all
// ranks are added.

// Ends this process if a call that cannot be cancelled takes too long: MPI's
// initialization and finalization wait for all ranks without a deadline.
//
//   {
//     const TimeLimit limit(time, [] { return "MPI has not started"; });
//     MPI_Init_thread(…);
//   }

// Prints "error: " and the text and leaves by exit_at_once(4).
[[noreturn]] void end_without_peers(const std::string& words);

// Unless destroyed in time, calls end_without_peers() with the text that
// `words` returns; both happen in another thread.
class TimeLimit {
 public:
  TimeLimit(std::chrono::nanoseconds time, std::function<std::string()> words);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  void wait(std::chrono::nanoseconds time);

  std::function<std::string()> words_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;  // last, because it uses the other members
};

// Ends this process if a call of MPI never returns.
//
// Our calls are non-blocking, but MPI may block inside: on one machine Open MPI
// passes messages through lists in shared memory, and spins there forever if
// the sender was killed between the two writes of an entry. Nothing can get the
// thread out again.
//
//   CallWatch watch({.peer_has_ended = …, .give_up = …});
//   {
//     const CallWatch::Call call(watch);
//     MPI_Test(…);
//   }
//
// Any thread may call. A process that was stopped is not penalized: the watch's
// thread counts its own ticks, and was stopped as well.

struct CallLimits {
  std::chrono::milliseconds tick{100};
  // The number of ticks that a call may last: after a rank of this machine has
  // ended, which is what leaves MPI in such a state, and before that.
  int ticks_after_end = 5;
  int ticks = 600;
};

// Detects long calls by counting alone: a call is counted in the era in which
// it begins, and a new era begins once no call of the era before the last is
// left.
class CallEras {
 public:
  // Returns the era, which is passed back at the end. Any thread may call.
  unsigned begin() {
    const unsigned era = era_.load() % 2;
    inside_[era].fetch_add(1);
    return era;
  }
  void end(unsigned era) { inside_[era].fetch_sub(1); }

  // Called periodically by one thread. Returns for how many consecutive ticks a
  // call has been in progress that began before the first of them.
  int tick();

 private:
  std::atomic<unsigned> era_ = 0;
  std::array<std::atomic<int>, 2> inside_{};
  int ticks_ = 0;
};

class CallWatch {
 public:
  // Called by the watch's thread: `peer_has_ended` says whether another rank
  // has ended; `give_up` is called once, for a call that has lasted too long.
  struct Hooks {
    std::function<bool()> peer_has_ended;
    std::function<void(std::chrono::milliseconds)> give_up;
  };

  explicit CallWatch(Hooks hooks, CallLimits limits = {});
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  class Call {
   public:
    explicit Call(CallWatch& watch) : eras_(watch.eras_), era_(eras_.begin()) {}
    ~Call() { eras_.end(era_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallEras& eras_;
    unsigned era_;
  };

 private:
  void run();

  Hooks hooks_;
  CallLimits limits_;
  CallEras eras_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;  // last, because it uses the other members
};

// Returns the same number for processes that can watch each other, which
// requires one kernel and one pid namespace; 0 if unknown.
uint64_t place_of_process();

class ProcessWatch {
 public:
  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Has no effect if the kernel cannot watch processes (before Linux 5.3).
  void add(int rank, int64_t pid);

  // Returns the first rank, in the order added, whose process has ended;
  // otherwise -1.
  int first_ended();
  // Return all ranks whose processes have ended, and those that are stopped.
  std::vector<int> ended() const;
  std::vector<int> stopped() const;

 private:
  std::vector<pollfd> files_;
  std::vector<int> ranks_;
  std::vector<int64_t> processes_;
};

// The kinds of a group's messages, as encoded in their tags.
enum class MpiKind : int { kMessage, kContinuation, kLeaving };
inline constexpr int kNumMpiKinds = 3;

// Throws PeerLost with MPI's text if a call has failed, because it is
// connections that fail.
void require_mpi(int result, const char* call);

class MpiWorld {
 public:
  // MPI must be initialized, and every rank must construct this at the same
  // time.
  explicit MpiWorld(const MpiOptions& options);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  const MpiOptions& options() const { return options_; }
  // The messages of all groups go through this communicator.
  MPI_Comm messages() const { return messages_; }
  // Numbers of groups are below this.
  int64_t most_groups() const { return most_groups_; }

  // Serializes the creation of groups; the holder may change last_group. Throws
  // PeerLost if the lock is not free in time.
  std::unique_lock<std::timed_mutex> lock_founding(Deadline until);
  int64_t last_group = 0;

  // Calls a function that uses MPI, or returns false without calling it once
  // the gate is closed.
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

  // Called regularly by threads that wait: checks whether another rank has
  // aborted, and aborts if one is gone.
  void look();
  // Called after a rank has left or ended: waits a moment for its reason.
  // Returns true if the world is aborted.
  bool listen();

  // Creates an MPI communicator of some ranks, which must all call this with
  // the same tag; no other thread of this process may use MPI meanwhile. Throws
  // PeerLost if they do not come. The communicator lives until MPI ends.
  MPI_Comm found(const std::vector<int>& ranks, int tag, Deadline until);

  // A message that the sender does not wait for.
  using Letter = std::array<int64_t, 2>;
  void send_letter(int to, int tag, const Letter& letter);

  // Call it after the last operation of all ranks.
  void finalize();
  // Explains to the user why MPI may not return: "rank 2 is stopped (process
  // 4711 on node7)". Only ranks of this machine can be named. Any thread may
  // call.
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
  // Callers must hold looking_.
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

  std::mutex looking_;  // guards everything below
  ProcessWatch watch_;
  std::chrono::steady_clock::time_point next_watch_;
  Notice arriving_{};
  MPI_Request notice_ = MPI_REQUEST_NULL;

  std::mutex letters_mutex_;
  std::list<Sent> letters_;

  std::unique_ptr<CallWatch> call_watch_;  // last, because its thread uses the
                                           // other members
};

}  // namespace canzona
