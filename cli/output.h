// Where the program writes: results to standard output, everything else to
// standard error, files whole or not at all.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
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

  // For text of results.
  const Ink& ink() const { return ink_; }

  // A result. StorageError if it cannot be written, ClosedPipe if nobody reads.
  void result(std::string_view text) const;

  // A line of another process, as it is. Not an error if nobody reads it.
  void pass_on(std::string_view line, bool is_error) const;

  // A remark on standard error; none with --quiet.
  void note(std::string_view text) const;

  // What is being done now: one line of a terminal, written over by the next;
  // elsewhere the first, then lines at least some seconds apart. Empty: the
  // line is free again. One thread at a time.
  void progress(std::string_view text) const;
  // Whether every progress is shown.
  bool shows_progress() const { return stderr_is_terminal_ && !quiet_; }
  bool is_quiet() const { return quiet_; }

  // "error: …" on standard error, with --quiet too, and the lines below it.
  void error(std::string_view text,
             const std::vector<std::string>& lines = {}) const;

  // Writes a result to a file and says so. StorageError if the disk is full,
  // UsageError if the path cannot be right.
  void save(const std::string& path, std::string_view contents,
            std::string_view what) const;
  // The same of a trace; remarks which tracks lack events.
  void save_trace(const std::string& path, const Trace& trace) const;

 private:
  Ink ink_;
  Ink error_ink_;
  bool quiet_;
  bool stderr_is_terminal_;
  mutable std::chrono::steady_clock::time_point next_line_ = {};
};

}  // namespace canzona::cli
