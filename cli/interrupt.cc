#include "cli/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace canzona::cli {
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
