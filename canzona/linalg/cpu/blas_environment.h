// The only file of this room that reads or writes environment variables, and
// only for OpenBLAS.
//
// If it is linked statically, a constructor of ours initializes the library
// before its own does and sets OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS for
// that moment, unless the user has set them. A shared OpenBLAS is initialized
// before any code of ours, so the program has to restart:
//
//   int main(int argc, char** argv) {
//     canzona::restart_with_blas_core(argv);
//
// Both leave the user's environment unchanged.
#pragma once

#include <string_view>

namespace canzona::linalg {

// Returns the kernels that this CPU should run; empty if OpenBLAS may choose.
std::string_view wanted_blas_core();

bool user_chose_blas_core();

// True if a core's kernels are older than AVX2 and this CPU is not.
bool is_fallback_core(std::string_view core);

// True if OpenBLAS runs kernels for AVX-512. Products of our own do so if it
// does: then bits follow from the core's name, which ranks compare.
bool blas_has_avx512();

// If a shared OpenBLAS took kernels that do not fit, re-executes the process
// with the variables set, at most once. Call it first in main, with main's
// argv; it returns if there is nothing to do.
void restart_with_blas_core(char** argv);

// True if this build had to take a shared OpenBLAS.
bool blas_is_shared();

}  // namespace canzona::linalg
