#include "canzona/launch/process_end.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "canzona/base/text.h"

namespace canzona {

ProcessEnd process_end(int wait_status) {
  ProcessEnd end;
  if (WIFEXITED(wait_status)) end.exit_status = WEXITSTATUS(wait_status);
  if (WIFSIGNALED(wait_status)) {
    end.signal = WTERMSIG(wait_status);
    end.dumped_core = WCOREDUMP(wait_status);
  }
  return end;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? cat("signal ", signal) : cat("SIG", name);
}

std::string to_string(const ProcessEnd& end) {
  if (end.signal != 0)
    return signal_name(end.signal) + (end.dumped_core ? " (core dumped)" : "");
  if (end.exit_status >= 0) return cat("exit status ", end.exit_status);
  return "an unknown end";
}

}  // namespace canzona
