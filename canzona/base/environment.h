// The environment of this process. No other file reads or changes it
// (tests/check_layers.sh); whoever decides by it takes Variables, so that tests
// give others.
//
//   const char* path = environment_variable("PATH");
//   find_launch(process_variables());
//
// Variables are changed while the process has one thread.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace canzona {

// Returns the value of a variable; null if it is not set.
using Variables = std::function<const char*(const char* name)>;

inline const char* environment_variable(const char* name) {
  return std::getenv(name);
}
inline Variables process_variables() { return environment_variable; }

// All variables, as "NAME=value".
inline std::vector<std::string> all_variables() {
  std::vector<std::string> all;
  for (char** at = environ; *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

// For libraries that are told so. False if the system refuses.
inline bool set_environment_variable(const std::string& name,
                                     const std::string& value) {
  return ::setenv(name.c_str(), value.c_str(), 1) == 0;
}
inline void unset_environment_variable(const char* name) { ::unsetenv(name); }

}  // namespace canzona
