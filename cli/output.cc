#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "cli/environment.h"
#include "cli/errors.h"

namespace canzona::cli {
namespace {

bool wants_color(ColorChoice choice, bool is_terminal, bool no_color) {
  if (choice == ColorChoice::kAuto) return is_terminal && !no_color;
  return choice == ColorChoice::kAlways;
}

// Returns false if nothing was read from a full pipe or terminal for a moment.
bool has_room(int descriptor) {
  constexpr int kMilliseconds = 100;
  pollfd wish{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&wish, 1, kMilliseconds) == 1;
}

}  // namespace

ColorChoice parse_color(std::string_view text) {
  if (text == "auto") return ColorChoice::kAuto;
  if (text == "always") return ColorChoice::kAlways;
  if (text == "never") return ColorChoice::kNever;
  throw UsageError(cat("--color ", quoted(text),
                       ": expected auto, always or never",
                       did_you_mean(text, {"auto", "always", "never"})));
}

Output::Output(const Environment& environment, ColorChoice color, bool quiet)
    : ink_(wants_color(color, environment.stdout_is_terminal,
                       environment.no_color)),
      error_ink_(wants_color(color, environment.stderr_is_terminal,
                             environment.no_color)),
      quiet_(quiet),
      stderr_is_terminal_(environment.stderr_is_terminal) {}

// The reader may stop: a pager, or a launcher that ends us (mpirun stops
// reading before it sends its signal). After a signal only files matter, and
// text that nobody reads is dropped; so no write may block, and each piece is
// small enough for any pipe that has room.
int Output::write_all(int descriptor, std::string_view text) const {
  constexpr size_t kPiece = 256;
  while (!text.empty()) {
    if (!has_room(descriptor)) {
      if (gives_up_()) return EAGAIN;
      continue;
    }
    const ssize_t done =
        ::write(descriptor, text.data(), std::min(kPiece, text.size()));
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (done < 0) return errno;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return 0;
}

void Output::result(std::string_view text) const {
  const int code = write_all(STDOUT_FILENO, text);
  if (code == EPIPE) throw ClosedPipe();
  if (code != 0 && code != EAGAIN)
    throw StorageError(cat("cannot write to standard output: ",
                           std::generic_category().message(code)));
}

// There is no way to report that standard error does not work.
bool Output::pass_on(std::string_view line, bool is_error) const {
  return 0 ==
         write_all(is_error ? STDERR_FILENO : STDOUT_FILENO, cat(line, "\n"));
}

void Output::note(std::string_view text) const {
  if (!quiet_) write_all(STDERR_FILENO, cat(text, "\n"));
}

void Output::progress(std::string_view text) const {
  constexpr const char* kClearLine = "\r\x1b[K";
  constexpr std::chrono::seconds kBetweenLines{5};
  if (quiet_) return;
  if (stderr_is_terminal_) {
    write_all(STDERR_FILENO, cat(kClearLine, text));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (text.empty() || now < next_line_) return;
  next_line_ = now + kBetweenLines;
  write_all(STDERR_FILENO, cat(text, "\n"));
}

void Output::error(std::string_view text,
                   const std::vector<std::string>& lines) const {
  std::string message = cat(error_ink_(Tone::kPoor, "error:"), " ", text, "\n");
  for (const std::string& line : lines) message += cat("  ", line, "\n");
  write_all(STDERR_FILENO, message);
}

void Output::save(const std::string& path, std::string_view contents,
                  std::string_view what) const {
  write_file(path, contents);
  note(cat("wrote ", what, " ", printable(path), " (",
           human_bytes(static_cast<int64_t>(contents.size())), ")"));
}

void Output::save_trace(const std::string& path, const Trace& trace) const {
  save(path, trace.json(), "trace");
  const std::string losses = trace.losses();
  if (!losses.empty()) note("warning: " + losses);
}

}  // namespace canzona::cli
