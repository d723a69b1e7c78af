#include "canzona/comm/mpi/time_limit.h"

#include <iostream>
#include <utility>

#include "canzona/base/exit_status.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/transport.h"

namespace canzona {

void end_without_peers(const std::string& words) {
  std::cerr << cat("error: ", words, "\n");
  exit_at_once(ExitStatus::kPeerLost);
}

TimeLimit::TimeLimit(std::chrono::nanoseconds time,
                     std::function<std::string()> words)
    : words_(std::move(words)), thread_([this, time] { wait(time); }) {}

TimeLimit::~TimeLimit() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void TimeLimit::wait(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  if (ended_.wait_until(lock, deadline_after(time), [&] { return is_over_; }))
    return;
  end_without_peers(words_());
}

}  // namespace canzona
