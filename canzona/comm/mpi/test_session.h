// For tests: the one MPI session of a test program, which test_main.cc opens.
#pragma once

#include "canzona/comm/mpi/mpi_session.h"

namespace canzona::comm {

MpiSession& test_session();

}  // namespace canzona::comm
