// What the program asks of its surroundings. No other file reads environment
// variables or looks at terminals.
#pragma once

#include <string>

namespace canzona::cli {

struct Environment {
  bool no_color = false;  // NO_COLOR is set and not empty, or TERM is "dumb"
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
};

Environment read_environment();

// Of this machine; "unknown" if it has none.
std::string host_name();

// Now: with fractions of a second, and as "2026-01-31T12:00:00Z".
double seconds_since_1970();
std::string utc_time();

}  // namespace canzona::cli
