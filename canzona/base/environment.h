// The environment of this process. No other file reads or changes it
// (tests/check_layers.sh). Code whose behaviour depends on it takes Variables,
// so that tests can pass their own.
//
//   const char* path = environment_variable("PATH");
//   find_launch(process_variables());
//
// Variables may be changed only while the process has a single thread.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace canzona {

// Returns the value of a variable, or null if it is not set.
using Variables = std::function<const char*(const char* name)>;

inline const char* environment_variable(const char* name) {
  return std::getenv(name);
}
inline Variables process_variables() { return environment_variable; }

// Returns all variables as "NAME=value".
inline std::vector<std::string> all_variables() {
  std::vector<std::string> all;
  for (char** at = environ; *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

// For libraries that read their settings from the environment. Returns false if
// the system refuses.
inline bool set_environment_variable(const std::string& name,
                                     const std::string& value) {
  return ::setenv(name.c_str(), value.c_str(), 1) == 0;
}
inline void unset_environment_variable(const char* name) { ::unsetenv(name); }

}  // namespace canzona
