#include "cli/output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>

#include "canzona/base/environment.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = environment_variable(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// mpirun gives its ranks a pseudo-terminal, whatever it writes to.
bool is_terminal(int descriptor) {
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (!variable(rank).empty()) return false;
  return ::isatty(descriptor) == 1;
}

size_t columns_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

Environment read_environment() {
  return {
      .no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb",
      .stdout_is_terminal = is_terminal(STDOUT_FILENO),
      .stderr_is_terminal = is_terminal(STDERR_FILENO),
      .columns = columns_of(STDOUT_FILENO)};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string sleep_for_tests() {
  return std::string(variable("CANZONA_TEST_SLEEP"));
}

namespace {

std::atomic<int> signal_seen = 0;
std::atomic<int> wishes_seen = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// A signal handler may read this: it is written before the handler is
// installed.
struct Notice {
  std::array<char, 400> text;
  size_t size = 0;

  void put(std::string_view says) {
    // "\r" comes first, in case of a progress line.
    constexpr std::string_view kBegin = "\r", kEnd = "\n";
    const std::string_view cut =
        says.substr(0, text.size() - kBegin.size() - kEnd.size());
    auto end = text.begin();
    if (!cut.empty())
      for (const std::string_view part : {kBegin, cut, kEnd})
        end = std::ranges::copy(part, end).out;
    size = static_cast<size_t>(end - text.begin());
  }
  void write() const {
    if (size > 0) (void)!::write(STDERR_FILENO, text.data(), size);
  }
};
Notice notice_of_end, notice_of_saving;

void remember_wish(int signal) {
  const int code = errno;
  signal_seen = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  notice_of_end.write();
  errno = code;
}

void count_wish(int) {
  const int code = errno;
  ++wishes_seen;
  notice_of_saving.write();
  errno = code;
}

}  // namespace

Interrupt::Interrupt(std::string_view says, std::string_view says_saving) {
  signal_seen = 0;
  wishes_seen = 0;
  notice_of_end.put(says);
  notice_of_saving.put(says_saving);
  // Without SA_RESTART, so that blocked calls return and see the signal.
  struct sigaction action {};
  action.sa_handler = remember_wish;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // Nothing has to see this one before the step is done.
  action.sa_handler = count_wish;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGUSR1, SIG_IGN);
}

const std::atomic<int>& Interrupt::signal() const { return signal_seen; }
const std::atomic<int>& Interrupt::wishes() const { return wishes_seen; }

bool signal_came() { return signal_seen != 0; }

namespace {

bool wants_color(ColorChoice choice, bool is_terminal, bool no_color) {
  if (choice == ColorChoice::kAuto) return is_terminal && !no_color;
  return choice == ColorChoice::kAlways;
}

// Tables of a pipe or a file are not cut; those of a terminal fill it.
size_t table_width(const Environment& environment) {
  return environment.stdout_is_terminal
             ? std::max(environment.columns, kPageWidth)
             : kAnyWidth;
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
                       environment.no_color),
           table_width(environment)),
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
      if (signal_came()) return EAGAIN;
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

void Output::result(const Document& view, bool as_json) const {
  result(as_json ? to_json(view) : print_text(view, ink_));
}

// There is no way to report that standard error does not work.
void Output::note(std::string_view text) const {
  if (quiet_) return;
  std::string safe;
  for (const std::string& line : split_text(text, '\n'))
    safe += printable(line, line.size()) + "\n";
  write_all(STDERR_FILENO, safe);
}

void Output::progress(std::string_view text) const {
  constexpr const char* kClearLine = "\r\x1b[K";
  constexpr std::chrono::seconds kBetweenLines{5};
  if (quiet_) return;
  if (stderr_is_terminal_) {
    write_all(STDERR_FILENO, cat(kClearLine, printable(text)));
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
  if (path == "-")
    throw UsageError(cat("cannot write ", what,
                         " to '-': expected the name of a file; --json prints "
                         "to standard output"));
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
