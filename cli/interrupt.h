// Ctrl-C as a wish: the first one is remembered, the second one ends the
// process as ever.
//
//   Interrupt interrupt("ending after this step");
//   while (interrupt.signal() == 0) step();
#pragma once

#include <atomic>
#include <string_view>

namespace canzona::cli {

// One at a time. SIGINT and SIGTERM are as they were when it ends.
class Interrupt {
 public:
  // `says`: a line for standard error when the first signal comes; "": none.
  explicit Interrupt(std::string_view says = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came, 0 before.
  const std::atomic<int>& signal() const;
};

// Whether an Interrupt has seen a signal: whoever reads our output may be gone,
// or wait for our end, and must not be waited for.
bool signal_came();

}  // namespace canzona::cli
