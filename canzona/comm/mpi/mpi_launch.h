// Tells whether a launcher of MPI programs has started this process, from the
// environment alone: MPI is not initialised, and a build without MPI knows too.
//
//   if (std::optional<MpiLaunch> launch = find_mpi_launch())
//     use_mpi(launch->num_ranks);
//
// Any thread may call, as long as none changes the environment.
#pragma once

#include <optional>
#include <string>

#include "canzona/base/environment.h"

namespace canzona {

struct MpiLaunch {
  std::string launcher;  // "Open MPI", "PMI" (MPICH and relatives) or "PMIx"
  int rank = 0;
  int num_ranks = 0;    // 0 if the launcher does not say
  int num_local = 0;    // of them, on this machine; 0 if it does not say
  int local_rank = -1;  // among those; -1 if it does not say
  // Seconds that it gives ranks between SIGTERM and SIGKILL; -1 if not known.
  int kill_seconds = -1;
};

// Open MPI's word counts before that of srun: every process in an allocation of
// Slurm has Slurm's variables, also where mpirun has started it. UsageError if
// variables are no numbers, or if two launchers contradict each other.
std::optional<MpiLaunch> find_mpi_launch();

// The same, of an environment that is given.
std::optional<MpiLaunch> find_mpi_launch(const Variables& variables);

}  // namespace canzona
