// Ends this process if a call takes too long that nobody can take back: MPI's
// start and its end wait for all ranks, without a deadline of their own.
//
//   {
//     const TimeLimit limit(time, [] { return "MPI has not started"; });
//     MPI_Init_thread(…);
//   }
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace canzona {

// Unless it is destroyed in time, prints "error: " and the words, which are
// asked for then and in another thread, and leaves by exit_at_once(4).
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
  std::thread thread_;  // last, because it uses all the others
};

}  // namespace canzona
