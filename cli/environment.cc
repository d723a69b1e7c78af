#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>

#include "canzona/base/environment.h"

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

}  // namespace

Environment read_environment() {
  return {
      .no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb",
      .stdout_is_terminal = is_terminal(STDOUT_FILENO),
      .stderr_is_terminal = is_terminal(STDERR_FILENO)};
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

}  // namespace canzona::cli
