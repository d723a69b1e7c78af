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

// Prints "error: " and the words and leaves by exit_at_once(4).
[[noreturn]] void end_without_peers(const std::string& words);

// Unless it is destroyed in time, ends without peers; the words are asked for then,
// in another thread.
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
