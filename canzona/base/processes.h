// Asks the kernel about other processes of this machine.
#pragma once

#include <cstdint>

namespace canzona {

// True if the process exists and is stopped (SIGSTOP, a debugger): it does
// nothing until somebody lets it go on. False where /proc does not tell.
bool is_stopped_process(int64_t pid);

}  // namespace canzona
