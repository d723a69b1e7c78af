#include "canzona/comm/mpi/mpi_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "canzona/base/error.h"

namespace canzona::comm::mpi_launch_test {
namespace {

std::optional<MpiLaunch> find_in(
    const std::map<std::string, std::string>& environment) {
  return find_mpi_launch([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(MpiLaunch, KnowsItsLaunchers) {
  const auto open_mpi =
      find_in({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->launcher, "Open MPI");
  EXPECT_EQ(open_mpi->rank, 3);
  EXPECT_EQ(open_mpi->num_ranks, 8);
  const auto mpich = find_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(mpich);
  EXPECT_EQ(mpich->num_ranks, 2);
  const auto srun = find_in({{"PMIX_RANK", "1"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "4"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_NTASKS_PER_NODE", "2"}});
  ASSERT_TRUE(srun);
  EXPECT_EQ(srun->launcher, "PMIx");
  EXPECT_EQ(srun->rank, 1);
  EXPECT_EQ(srun->num_ranks, 4);
  EXPECT_EQ(srun->num_local, 2);
  EXPECT_EQ(find_in({{"PMIX_RANK", "1"}})->num_ranks, 0);
}

TEST(MpiLaunch, TellsTheRanksOfThisMachineIfTheLauncherDoes) {
  EXPECT_EQ(find_in({{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_SIZE", "8"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})
                ->num_local,
            4);
  EXPECT_EQ(find_in({{"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "2"}})->num_local,
            2);
  EXPECT_EQ(find_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})->num_local, 0);
}

TEST(MpiLaunch, TellsARanksNumberOnItsMachineIfTheLauncherDoes) {
  EXPECT_EQ(find_in({{"OMPI_COMM_WORLD_RANK", "7"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                     {"SLURM_LOCALID", "0"}})
                ->local_rank,
            3);
  EXPECT_EQ(find_in({{"PMI_RANK", "5"}, {"MPI_LOCALRANKID", "1"}})->local_rank,
            1);
  for (const char* name : {"PMI_RANK", "PMIX_RANK"})
    EXPECT_EQ(find_in({{name, "5"},
                       {"SLURM_PROCID", "5"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "8"},
                       {"SLURM_LOCALID", "1"}})
                  ->local_rank,
              1);
  EXPECT_EQ(find_in({{"PMIX_RANK", "5"}})->local_rank, -1);
}

TEST(MpiLaunch, TellsHowLongRanksHaveToEnd) {
  EXPECT_EQ(find_in({{"OMPI_COMM_WORLD_RANK", "3"}})->kill_seconds, 1);
  EXPECT_EQ(find_in({{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_MCA_odls_base_sigkill_timeout", "60"}})
                ->kill_seconds,
            60);
  EXPECT_EQ(find_in({{"PMI_RANK", "0"}})->kill_seconds, -1);
}

TEST(MpiLaunch, FindsNoneInAPlainEnvironment) {
  EXPECT_FALSE(find_in({}));
  EXPECT_FALSE(find_in({{"SLURM_NTASKS", "4"}, {"PMI_SIZE", "4"}}));
}

// salloc and sbatch set variables for the whole allocation, and mpirun passes
// them on; a batch script is task 0 of no step.
TEST(MpiLaunch, TakesNoWordOfAnAllocationForALauncher) {
  using Environment = std::map<std::string, std::string>;
  const Environment salloc = {{"SLURM_NTASKS", "1"},
                              {"SLURM_NTASKS_PER_NODE", "1"}};
  Environment sbatch = salloc;
  sbatch["SLURM_PROCID"] = "0";
  // mpirun starts its daemons by srun, one on each node.
  Environment remote = sbatch;
  remote["SLURM_STEP_ID"] = "0";
  remote["SLURM_STEP_NUM_TASKS"] = "2";
  for (Environment environment : {salloc, sbatch, remote}) {
    EXPECT_FALSE(find_in(environment));
    for (const char* rank : {"0", "3"}) {
      environment["OMPI_COMM_WORLD_RANK"] = rank;
      environment["OMPI_COMM_WORLD_SIZE"] = "4";
      environment["PMIX_RANK"] = rank;
      const auto launch = find_in(environment);
      ASSERT_TRUE(launch);
      EXPECT_EQ(launch->launcher, "Open MPI");
      EXPECT_EQ(launch->rank, std::stoi(rank));
      EXPECT_EQ(launch->num_ranks, 4);
      EXPECT_EQ(launch->num_local, 0);
    }
  }
  // Another launcher that uses PMIx: Slurm knows nothing about its ranks.
  sbatch["PMIX_RANK"] = "0";
  EXPECT_EQ(find_in(sbatch)->num_ranks, 0);
}

// mpirun in a shell that srun has started, whose PMI variables are still set.
TEST(MpiLaunch, OpenMpiWinsInsideAStep) {
  for (const char* inherited : {"PMI", "PMIX"}) {
    const auto launch = find_in({{"OMPI_COMM_WORLD_RANK", "3"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {std::string(inherited) + "_RANK", "0"},
                                 {std::string(inherited) + "_SIZE", "1"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_STEP_ID", "2"},
                                 {"SLURM_STEP_NUM_TASKS", "1"}});
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->rank, 3);
    EXPECT_EQ(launch->num_ranks, 4);
  }
}

TEST(MpiLaunch, RefusesTorchrunWhereItContradicts) {
  std::map<std::string, std::string> both = {{"OMPI_COMM_WORLD_RANK", "1"},
                                             {"OMPI_COMM_WORLD_SIZE", "2"},
                                             {"TORCHELASTIC_RUN_ID", "none"},
                                             {"RANK", "1"},
                                             {"WORLD_SIZE", "2"}};
  EXPECT_TRUE(find_in(both));
  both["WORLD_SIZE"] = "4";
  EXPECT_THROW(find_in(both), UsageError);
  // Without torchrun these variables may come from anything.
  both.erase("TORCHELASTIC_RUN_ID");
  EXPECT_TRUE(find_in(both));
  EXPECT_FALSE(find_in(
      {{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}));
}

TEST(MpiLaunch, RefusesContradictionsAndWordsThatAreNoNumbers) {
  // Open MPI's own children have PMIx variables, too.
  EXPECT_TRUE(find_in({{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"PMIX_RANK", "1"}}));
  try {
    find_in({{"OMPI_COMM_WORLD_RANK", "1"},
             {"OMPI_COMM_WORLD_SIZE", "2"},
             {"PMI_RANK", "0"},
             {"PMI_SIZE", "2"}});
    FAIL() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("Open MPI says rank 1 of 2, PMI says rank "
                                   "0 of 2"));
  }
  EXPECT_THROW(find_in({{"PMI_RANK", "first"}}), UsageError);
}

}  // namespace
}  // namespace canzona::comm::mpi_launch_test
