// The only file of this room that reads or writes environment variables, and
// it does so for OpenBLAS alone.
//
// Linked statically, the library is started by a constructor of ours that runs
// before its own and sets OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS for that
// moment, unless the user has. A shared OpenBLAS is started before any code of
// ours, so the program has to begin once more:
//
//   int main(int argc, char** argv) {
//     canzona::restart_with_blas_core(argv);
//
// Both leave the environment as the user made it.
#pragma once

#include <string>
#include <string_view>

namespace canzona {

// The kernels that this CPU should run; empty where OpenBLAS may choose.
std::string_view wanted_blas_core();

bool user_chose_blas_core();

// True if a core's kernels are older than AVX2 and this CPU is not.
bool is_fallback_core(std::string_view core);

// If a shared OpenBLAS took kernels that do not fit, this replaces the process
// by itself with the variables set, at most once. Call it first in main, with
// main's argv; it returns if there is nothing to do.
void restart_with_blas_core(char** argv);

// True if this build had to take a shared OpenBLAS.
bool blas_is_shared();

}  // namespace canzona
