// What the program asks of its surroundings. No other file reads environment
// variables or looks at terminals.
#pragma once

namespace canzona::cli {

struct Environment {
  bool no_color = false;  // NO_COLOR is set and not empty, or TERM is "dumb"
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
};

Environment read_environment();

}  // namespace canzona::cli
