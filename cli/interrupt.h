// Ctrl-C as a wish: the first one is remembered, the second one ends the
// process as ever.
//
//   Interrupt interrupt;
//   while (!interrupt.flag()) step();
#pragma once

#include <atomic>

namespace canzona::cli {

// One at a time. SIGINT and SIGTERM are as they were when it ends.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& flag() const;
};

}  // namespace canzona::cli
