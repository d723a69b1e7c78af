// The program writes results to standard output, everything else to standard
// error, files whole or not at all.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/report/terminal.h"
#include "canzona/trace/trace.h"
#include "cli/environment.h"

namespace canzona::cli {

enum class ColorChoice { kAuto, kAlways, kNever };
ColorChoice parse_color(std::string_view text);

class Output {
 public:
  Output(const Environment& environment, ColorChoice color, bool quiet);

  // Called repeatedly while a pipe or terminal accepts nothing; if it returns
  // true, the rest of the text is dropped. Default: whether a signal came.
  void set_gives_up(std::function<bool()> gives_up) {
    gives_up_ = std::move(gives_up);
  }

  // For text of results.
  const Ink& ink() const { return ink_; }

  // Writes a result. Throws StorageError if it cannot be written, ClosedPipe if
  // nobody reads.
  void result(std::string_view text) const;

  // Forwards a line of another process unchanged. It is not an error if nobody
  // reads it; returns false if it was dropped.
  bool pass_on(std::string_view line, bool is_error) const;

  // Writes a note to standard error; none with --quiet.
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

  std::function<bool()> gives_up_ = signal_came;
  Ink ink_;
  Ink error_ink_;
  bool quiet_;
  bool stderr_is_terminal_;
  mutable std::chrono::steady_clock::time_point next_line_ = {};
};

}  // namespace canzona::cli
