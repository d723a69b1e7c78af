// Detects that other processes of this machine have ended, for whatever reason,
// or are stopped.
//
//   ProcessWatch watch;
//   watch.add(rank, pid);          // where place_of_process() is equal
//   if (watch.first_ended() >= 0) …
//
// One thread at a time; const functions may be called by any thread once all
// ranks are added.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace canzona::comm {

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

}  // namespace canzona::comm
