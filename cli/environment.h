// Everything that surrounds the program: terminals, the clock, signals.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace canzona::cli {

// The program asks this of its surroundings. No other file looks at terminals.
struct Environment {
  bool no_color = false;  // NO_COLOR is set and not empty, or TERM is "dumb"
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
};

Environment read_environment();

// The name of this machine; "unknown" if it has none.
std::string host_name();

// Now: with fractions of a second, and as "2026-01-31T12:00:00Z".
double seconds_since_1970();
std::string utc_time();

// For tests: "2:200" if rank 2 shall sleep for 200 ms in every step
// (CANZONA_TEST_SLEEP); "" if no rank shall.
std::string sleep_for_tests();

// Ctrl-C as a wish: the first one is remembered, the second one ends the
// process as ever. SIGUSR1 is one, too, and may come any number of times.
//
//   Interrupt interrupt("ending after this step", "saving after this step");
//   while (interrupt.signal() == 0) step();

// One at a time. SIGINT and SIGTERM are as they were when it ends; SIGUSR1 is
// ignored from then on.
class Interrupt {
 public:
  // A line for standard error when the first signal comes, and at every
  // SIGUSR1; "": none.
  explicit Interrupt(std::string_view says = "",
                     std::string_view says_saving = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came, 0 before.
  const std::atomic<int>& signal() const;
  // Counts how often SIGUSR1 has come.
  const std::atomic<int>& wishes() const;
};

// True if an Interrupt has seen a signal: whoever reads our output may be gone,
// or wait for our end, and must not be waited for.
bool signal_came();

}  // namespace canzona::cli
