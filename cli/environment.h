// The program's environment: terminals, the clock, signals.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace canzona::cli {

// What the program knows about its environment. No other file looks at
// terminals.
struct Environment {
  bool no_color = false;  // NO_COLOR is set and not empty, or TERM is "dumb"
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
};

Environment read_environment();

// Returns the name of this machine; "unknown" if it has none.
std::string host_name();

// The current time: with fractions of a second, and as "2026-01-31T12:00:00Z".
double seconds_since_1970();
std::string utc_time();

// For tests: "2:200" makes rank 2 sleep for 200 ms in every step
// (CANZONA_TEST_SLEEP); "" for none.
std::string sleep_for_tests();

// Turns Ctrl-C into a request: the first one is recorded, the second one ends
// the process as usual. SIGUSR1 is a request, too, and may come any number of
// times.
//
//   Interrupt interrupt("ending after this step", "saving after this step");
//   while (interrupt.signal() == 0) step();

// Only one may exist at a time. Its destructor restores SIGINT and SIGTERM;
// SIGUSR1 is ignored from then on.
class Interrupt {
 public:
  // `says` is printed to standard error at the first signal, `says_saving` at
  // every SIGUSR1; "" prints nothing.
  explicit Interrupt(std::string_view says = "",
                     std::string_view says_saving = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came; 0 before.
  const std::atomic<int>& signal() const;
  // Counts the SIGUSR1 signals.
  const std::atomic<int>& wishes() const;
};

// True if an Interrupt has seen a signal: the reader of our output may be gone,
// or wait for our end, and must not be waited for.
bool signal_came();

}  // namespace canzona::cli
