// The program's environment, terminals, the clock and signals, and what it
// writes: results to standard output, everything else to standard error, files
// whole or not at all.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/report/document.h"
#include "canzona/report/terminal.h"
#include "canzona/trace/trace.h"

namespace canzona::cli {

// Thrown when the reader of our output has closed the pipe, which is not an
// error of ours.
class ClosedPipe : public Error {
 public:
  ClosedPipe() : Error("the reader of the output has closed it") {}
};

// What the program knows about its environment. No other file looks at
// terminals.
struct Environment {
  bool no_color = false;  // NO_COLOR is set and not empty, or TERM is "dumb"
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
  size_t columns = 0;  // of the terminal that is standard output; 0: unknown
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

enum class ColorChoice { kAuto, kAlways, kNever };
ColorChoice parse_color(std::string_view text);

class Output {
 public:
  Output(const Environment& environment, ColorChoice color, bool quiet);

  // For text of results.
  const Ink& ink() const { return ink_; }

  // Writes a result. Throws StorageError if it cannot be written, ClosedPipe if
  // nobody reads.
  void result(std::string_view text) const;
  // Writes a view as text or as JSON.
  void result(const Document& view, bool as_json) const;

  // Writes a note to standard error, made safe for the terminal; none with
  // --quiet.
  void note(std::string_view text) const;

  // Shows what is being done: on a terminal one line, overwritten by the next;
  // otherwise the first, then lines at least some seconds apart. An empty text
  // clears the line. One thread at a time.
  void progress(std::string_view text) const;
  // True if every progress is shown.
  bool shows_progress() const { return stderr_is_terminal_ && !quiet_; }
  bool is_quiet() const { return quiet_; }

  // Writes "error: …" to standard error, even with --quiet, and the lines below
  // it.
  void error(std::string_view text,
             const std::vector<std::string>& lines = {}) const;

  // Writes a result to a file and says so. Throws StorageError if the disk is
  // full, UsageError if the path cannot be written.
  void save(const std::string& path, std::string_view contents,
            std::string_view what) const;
  // The same for a trace; notes which tracks lack events.
  void save_trace(const std::string& path, const Trace& trace) const;

 private:
  // Returns 0, EAGAIN if text was dropped, or the errno of the write that
  // failed.
  int write_all(int descriptor, std::string_view text) const;

  Ink ink_;
  Ink error_ink_;
  bool quiet_;
  bool stderr_is_terminal_;
  mutable std::chrono::steady_clock::time_point next_line_ = {};
};

}  // namespace canzona::cli
