#include "canzona/comm/mpi/process_watch.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "canzona/base/processes.h"
#include "canzona/base/text.h"

namespace canzona {

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

}  // namespace canzona
