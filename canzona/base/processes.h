// Asks the kernel about other processes of this machine.
#pragma once

#include <cstdint>

namespace canzona {

// Returns true if the process exists and is stopped (SIGSTOP, a debugger), so
// that it does nothing until it is continued. Returns false where /proc does
// not say.
bool is_stopped_process(int64_t pid);

}  // namespace canzona
