// For test programs: hooks at the beginning of some MPI functions, which
// test_mpi_calls.cc overrides through MPI's profiling interface.
#pragma once

#include <functional>

#include "canzona/base/rooms.h"

namespace canzona::comm {

struct MpiCallHooks {
  std::function<void()> finalize = [] {};
  std::function<void()> testsome = [] {};
};

// Must be set before MPI is used.
MpiCallHooks& mpi_call_hooks();

}  // namespace canzona::comm
