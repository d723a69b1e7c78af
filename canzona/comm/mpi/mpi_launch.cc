#include "canzona/comm/mpi/mpi_launch.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_session.h"

namespace canzona::comm {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local;
  const char* local_rank;
  const char* kill_timeout = nullptr;
  int usual_kill_seconds = -1;
};

constexpr Launcher kOpenMpi = {"Open MPI",
                               "OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_MCA_odls_base_sigkill_timeout",
                               1};
constexpr Launcher kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS",
                           "MPI_LOCALRANKID"};
// PMIx does not give the size; Slurm does if srun started the process.
constexpr Launcher kPmix = {"PMIx", "PMIX_RANK", "", "", "PMIX_LOCAL_RANK"};
constexpr Launcher kPmixOfSlurm = {"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS",
                                   "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"};
// torchrun starts no MPI programs, but it must not contradict the launcher that
// did.
constexpr Launcher kTorchrun = {"torchrun", "RANK", "WORLD_SIZE",
                                "LOCAL_WORLD_SIZE", "LOCAL_RANK"};

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
  if (variables(launcher.local_rank) != nullptr)
    launch.local_rank = number_of(variables, launcher.local_rank);
  if (launcher.kill_timeout != nullptr)
    launch.kill_seconds = variables(launcher.kill_timeout) == nullptr
                              ? launcher.usual_kill_seconds
                              : number_of(variables, launcher.kill_timeout);
  return launch;
}

// Returns true if srun set the launcher's variable. Every process in a Slurm
// allocation has Slurm variables, even those that mpirun starts; only srun
// gives each a number in a step and passes it to PMI and PMIx.
bool is_of_srun(const Launcher& launcher, const Variables& variables) {
  const char* rank = variables(launcher.rank);
  const char* task = variables("SLURM_PROCID");
  return rank != nullptr && task != nullptr &&
         variables("SLURM_STEP_ID") != nullptr &&
         std::string_view(rank) == task;
}

std::string describe(const MpiLaunch& launch) {
  return cat(launch.launcher, " says rank ", launch.rank,
             launch.num_ranks > 0 ? cat(" of ", launch.num_ranks) : "");
}

void require_agreement(const MpiLaunch& first, const MpiLaunch& second) {
  const bool same_size = first.num_ranks == second.num_ranks ||
                         first.num_ranks == 0 || second.num_ranks == 0;
  if (first.rank == second.rank && same_size) return;
  throw UsageError(
      cat("launchers contradict each other: ", describe(first), ", ",
          describe(second),
          "; unset the variables of the one that did not start this program"));
}

}  // namespace

std::optional<MpiLaunch> find_mpi_launch(const Variables& variables) {
  std::optional<MpiLaunch> found = read(kOpenMpi, variables);
  const bool by_open_mpi = found.has_value();
  for (const Launcher* launcher : {&kPmi, &kPmix}) {
    const bool by_srun = is_of_srun(*launcher, variables);
    // mpirun was started inside an srun step; srun's variables describe that
    // step.
    if (by_open_mpi && by_srun) continue;
    const std::optional<MpiLaunch> launch = read(
        launcher == &kPmix && by_srun ? kPmixOfSlurm : *launcher, variables);
    if (!launch) continue;
    if (found) require_agreement(*found, *launch);
    if (!found) found = launch;
  }
  const bool by_srun =
      is_of_srun(kPmi, variables) || is_of_srun(kPmix, variables);
  if (found && !by_open_mpi && by_srun && found->local_rank < 0 &&
      variables("SLURM_LOCALID") != nullptr)
    found->local_rank = number_of(variables, "SLURM_LOCALID");
  if (found && variables("TORCHELASTIC_RUN_ID") != nullptr)
    if (const auto torchrun = read(kTorchrun, variables))
      require_agreement(*found, *torchrun);
  return found;
}

std::optional<MpiLaunch> find_mpi_launch() {
  return find_mpi_launch(process_variables());
}

}  // namespace canzona::comm

namespace canzona {
using namespace comm;

void exit_at_once(int status) noexcept {
  try {
    std::cout.flush();
    std::cerr.flush();
    std::clog.flush();
  } catch (...) {
    // A failed flush is ignored: the exit status matters more.
  }
  std::fflush(nullptr);
  // A SIGTERM from the launcher comes too late to matter.
  std::signal(SIGTERM, SIG_IGN);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(status);
}

}  // namespace canzona
