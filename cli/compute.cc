#include "cli/compute.h"

#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "cli/ranks.h"

namespace canzona::cli {

void begin_compute(char** argv) { restart_with_blas_core(argv); }

int end_compute(int status) {
  if (ranks_are_open()) exit_at_once(status);
  return status;
}

}  // namespace canzona::cli
