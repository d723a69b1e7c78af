#include "canzona/comm/mpi/test_mpi_calls.h"

#include <mpi.h>

namespace canzona::comm {

MpiCallHooks& mpi_call_hooks() {
  static MpiCallHooks hooks;
  return hooks;
}

}  // namespace canzona::comm

extern "C" int MPI_Finalize() {
  canzona::comm::mpi_call_hooks().finalize();
  return PMPI_Finalize();
}

extern "C" int MPI_Testsome(int count, MPI_Request* requests, int* num_over,
                            int* over, MPI_Status* statuses) {
  canzona::comm::mpi_call_hooks().testsome();
  return PMPI_Testsome(count, requests, num_over, over, statuses);
}
