// Detects from the environment alone whether an MPI launcher has started this
// process; MPI is not initialized, and a build without MPI can tell, too.
//
//   if (std::optional<MpiLaunch> launch = find_mpi_launch())
//     use_mpi(launch->num_ranks);
//
// Any thread may call, as long as no thread changes the environment.
#pragma once

#include <optional>
#include <string>

#include "canzona/base/environment.h"

namespace canzona::comm {

struct MpiLaunch {
  std::string launcher;  // "Open MPI", "PMI" (MPICH and relatives) or "PMIx"
  int rank = 0;
  int num_ranks = 0;    // 0 if the launcher does not say
  int num_local = 0;    // on this machine; 0 if the launcher does not say
  int local_rank = -1;  // on this machine; -1 if the launcher does not say
  // Seconds that the launcher leaves between SIGTERM and SIGKILL; -1 if not
  // known.
  int kill_seconds = -1;
};

// Open MPI's variables take precedence over those of srun, because every
// process in a Slurm allocation has Slurm's variables even if mpirun has
// started it. Throws UsageError if variables are not numbers or two launchers
// contradict each other.
std::optional<MpiLaunch> find_mpi_launch();

// The same for the given environment.
std::optional<MpiLaunch> find_mpi_launch(const Variables& variables);

}  // namespace canzona::comm
