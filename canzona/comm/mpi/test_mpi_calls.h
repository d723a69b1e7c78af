// For test programs: what happens at the beginning of some of MPI's functions,
// which test_mpi_calls.cc puts in the place of the library's, as its profiling
// interface provides for.
#pragma once

#include <functional>

namespace canzona {

struct MpiCallHooks {
  std::function<void()> finalize = [] {};
  std::function<void()> testsome = [] {};
};

// Set before MPI is used.
MpiCallHooks& mpi_call_hooks();

}  // namespace canzona
