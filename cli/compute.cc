#include "cli/compute.h"

#include "canzona/linalg/cpu/blas_environment.h"

namespace canzona::cli {

void begin_compute(char** argv) { restart_with_blas_core(argv); }

}  // namespace canzona::cli
