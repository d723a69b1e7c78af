// Ends this process if a call that cannot be cancelled takes too long: MPI's
// initialization and finalization wait for all ranks without a deadline.
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

}  // namespace canzona
