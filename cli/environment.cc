#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace canzona::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// mpirun gives its ranks a terminal of their own, whatever it writes to.
bool is_terminal(int descriptor) {
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (!variable(rank).empty()) return false;
  return ::isatty(descriptor) == 1;
}

}  // namespace

Environment read_environment() {
  return {
      .no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb",
      .stdout_is_terminal = is_terminal(STDOUT_FILENO),
      .stderr_is_terminal = is_terminal(STDERR_FILENO)};
}

const char* environment_variable(const char* name) {
  return std::getenv(name);
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

namespace {

std::atomic<int> signal_seen = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// What a handler may look at: written before the handler is installed.
std::array<char, 400> notice;
size_t notice_size = 0;

void remember_wish(int signal) {
  const int code = errno;
  signal_seen = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (notice_size > 0)
    (void)!::write(STDERR_FILENO, notice.data(), notice_size);
  errno = code;
}

}  // namespace

Interrupt::Interrupt(std::string_view says) {
  signal_seen = 0;
  // "\r": behind a line of progress.
  constexpr std::string_view kBegin = "\r", kEnd = "\n";
  const std::string_view text =
      says.substr(0, notice.size() - kBegin.size() - kEnd.size());
  auto end = notice.begin();
  if (!text.empty())
    for (const std::string_view part : {kBegin, text, kEnd})
      end = std::ranges::copy(part, end).out;
  notice_size = static_cast<size_t>(end - notice.begin());
  // Without SA_RESTART, so that whoever waits looks at the signal.
  struct sigaction action {};
  action.sa_handler = remember_wish;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<int>& Interrupt::signal() const { return signal_seen; }

bool signal_came() { return signal_seen != 0; }

}  // namespace canzona::cli
