// Describes how a process ended.
//
//   int status = 0;
//   ::waitpid(pid, &status, 0);
//   std::string words = to_string(process_end(status));   // "SIGKILL"
#pragma once

#include <string>

namespace canzona {

struct ProcessEnd {
  int exit_status = -1;  // -1: it did not exit
  int signal = 0;        // that ended it; 0: none
  bool dumped_core = false;

  // False if the end was not observed.
  bool is_known() const { return exit_status >= 0 || signal != 0; }
  bool is_good() const { return exit_status == 0; }
};

ProcessEnd process_end(int wait_status);

// "SIGKILL", or "signal 70" if it has no name.
std::string signal_name(int signal);

// "SIGSEGV (core dumped)", "exit status 3", "an unknown end".
std::string to_string(const ProcessEnd& end);

}  // namespace canzona
