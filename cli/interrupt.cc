#include "cli/interrupt.h"

#include <csignal>

namespace canzona::cli {
namespace {

std::atomic<bool> wish = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remember(int signal) {
  wish = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  wish = false;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>& Interrupt::flag() const { return wish; }

}  // namespace canzona::cli
