#include "canzona/comm/mpi/mpi_launch.h"

#include <array>
#include <cstdlib>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local;
  const char* kill_timeout = nullptr;
  int usual_kill_seconds = -1;
};

// PMIx tells no size; under Slurm, which speaks it, Slurm does.
constexpr std::array<Launcher, 3> kLaunchers = {{
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_odls_base_sigkill_timeout", 1},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"PMIx", "PMIX_RANK", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"},
}};

int number_of(const Variables& variables, const char* name) {
  constexpr int64_t kMostRanks = int64_t{1} << 20;
  return static_cast<int>(parse_integer(variables(name), 0, kMostRanks, name));
}

std::optional<MpiLaunch> read(const Launcher& launcher,
                              const Variables& variables) {
  if (variables(launcher.rank) == nullptr) return std::nullopt;
  MpiLaunch launch{.launcher = launcher.name,
                   .rank = number_of(variables, launcher.rank)};
  if (variables(launcher.size) != nullptr)
    launch.num_ranks = number_of(variables, launcher.size);
  if (variables(launcher.local) != nullptr)
    launch.num_local = number_of(variables, launcher.local);
  if (launcher.kill_timeout != nullptr)
    launch.kill_seconds = variables(launcher.kill_timeout) == nullptr
                              ? launcher.usual_kill_seconds
                              : number_of(variables, launcher.kill_timeout);
  return launch;
}

std::string describe(const MpiLaunch& launch) {
  return cat(launch.launcher, " says rank ", launch.rank, " of ",
             launch.num_ranks);
}

void require_agreement(const MpiLaunch& first, const MpiLaunch& second) {
  const bool same_size = first.num_ranks == second.num_ranks ||
                         first.num_ranks == 0 || second.num_ranks == 0;
  if (first.rank == second.rank && same_size) return;
  throw UsageError(cat("launchers contradict each other: ", describe(first),
                       ", ", describe(second)));
}

}  // namespace

std::optional<MpiLaunch> find_mpi_launch(const Variables& variables) {
  std::optional<MpiLaunch> found;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<MpiLaunch> launch = read(launcher, variables);
    if (!launch) continue;
    if (!found) {
      found = launch;
    } else {
      require_agreement(*found, *launch);
    }
  }
  return found;
}

std::optional<MpiLaunch> find_mpi_launch() {
  return find_mpi_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace canzona
