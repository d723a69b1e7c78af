#include "canzona/comm/mpi/process_watch.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <utility>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/transport.h"

namespace canzona::comm {

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

int CallEras::tick() {
  if (inside_[(era_.load() + 1) % 2].load() != 0) return ++ticks_;
  era_.fetch_add(1);
  return ticks_ = 0;
}

CallWatch::CallWatch(Hooks hooks, CallLimits limits)
    : hooks_(std::move(hooks)), limits_(limits), thread_([this] { run(); }) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void CallWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, limits_.tick, [&] { return is_over_; })) {
    const int ticks = eras_.tick();
    if (ticks < limits_.ticks_after_end) continue;
    if (ticks < limits_.ticks && !hooks_.peer_has_ended()) continue;
    hooks_.give_up(ticks * limits_.tick);
    return;
  }
}

uint64_t place_of_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat names {};
  if (boot.empty() || stat("/proc/self/ns/pid", &names) != 0) return 0;
  return std::hash<std::string>{}(cat(boot, " ", names.st_ino));
}

ProcessWatch::~ProcessWatch() {
  for (const pollfd& file : files_) close(file.fd);
}

void ProcessWatch::add(int rank, int64_t pid) {
  const long file = syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0);
  if (file < 0) return;
  files_.push_back({static_cast<int>(file), POLLIN, 0});
  ranks_.push_back(rank);
  processes_.push_back(pid);
}

// The descriptor of an ended process becomes readable even before its parent
// has reaped it.
int ProcessWatch::first_ended() {
  if (files_.empty() || poll(files_.data(), files_.size(), 0) <= 0) return -1;
  for (size_t i = 0; i < files_.size(); ++i)
    if (files_[i].revents != 0) return ranks_[i];
  return -1;
}

std::vector<int> ProcessWatch::ended() const {
  std::vector<int> found;
  for (size_t i = 0; i < files_.size(); ++i) {
    pollfd file{files_[i].fd, POLLIN, 0};
    if (poll(&file, 1, 0) > 0) found.push_back(ranks_[i]);
  }
  return found;
}

std::vector<int> ProcessWatch::stopped() const {
  std::vector<int> found;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (is_stopped_process(processes_[i])) found.push_back(ranks_[i]);
  return found;
}

}  // namespace canzona::comm
