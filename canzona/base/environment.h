// The environment of this process. No other file reads or changes it
// (tests/check_layers.sh). Code whose behaviour depends on it takes Variables,
// so that tests can pass their own.
//
//   const char* path = environment_variable("PATH");
//   find_launch(process_variables());
//
// Variables may be changed only while the process has a single thread. It also
// asks the kernel about other processes of this machine.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "canzona/base/text.h"

namespace canzona {

// Returns the value of a variable, or null if it is not set.
using Variables = std::function<const char*(const char* name)>;

inline const char* environment_variable(const char* name) {
  return std::getenv(name);
}
inline Variables process_variables() { return environment_variable; }

// For libraries that read their settings from the environment. Returns false if
// the system refuses.
inline bool set_environment_variable(const std::string& name,
                                     const std::string& value) {
  return ::setenv(name.c_str(), value.c_str(), 1) == 0;
}
inline void unset_environment_variable(const char* name) { ::unsetenv(name); }

// Returns true if the process exists and is stopped (SIGSTOP, a debugger), so
// that it does nothing until it is continued. Returns false where /proc does
// not say. Its line there reads "4711 (name) T …", where the name may contain
// anything; the state is the letter after it.
inline bool is_stopped_process(int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

}  // namespace canzona
