// Ends this process if a call of MPI never returns.
//
// Our calls wait for nobody, but MPI may: Open MPI passes messages on one
// machine through lists in shared memory, and spins there without end if the
// sender was killed between the two writes of an entry. Nobody can take the
// thread out of it.
//
//   CallWatch watch({.peer_has_ended = …, .give_up = …});
//   {
//     const CallWatch::Call call(watch);
//     MPI_Test(…);
//   }
//
// Any thread may call. A process that was stopped loses nothing: the watch's
// thread counts its own ticks, and was stopped as well.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace canzona {

struct CallLimits {
  std::chrono::milliseconds tick{100};
  // A call may last for so many ticks once a rank of this machine has ended,
  // which is what leaves MPI in such a state, and for so many before that.
  int ticks_after_end = 5;
  int ticks = 600;
};

// Tells whether a call lasts, from counts alone: calls are counted in the era
// in which they begin, and an era begins once none is left of the one before
// the last.
class CallEras {
 public:
  // Any thread. The era is handed back at the end.
  unsigned begin() {
    const unsigned era = era_.load() % 2;
    inside_[era].fetch_add(1);
    return era;
  }
  void end(unsigned era) { inside_[era].fetch_sub(1); }

  // One thread, now and then: at how many of these calls, without a break, a
  // call was under way that had begun before the first of them.
  int tick();

 private:
  std::atomic<unsigned> era_ = 0;
  std::array<std::atomic<int>, 2> inside_{};
  int ticks_ = 0;
};

class CallWatch {
 public:
  // Asked in the watch's thread: whether another rank has ended; and, once,
  // what to do about a call that has lasted for too long.
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
  std::thread thread_;  // last, because it uses all the others
};

}  // namespace canzona
