#include "canzona/comm/mpi/mpi_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "canzona/base/error.h"

namespace canzona {
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
  const auto slurm = find_in({{"PMIX_RANK", "1"}, {"SLURM_NTASKS", "4"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->num_ranks, 4);
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

TEST(MpiLaunch, RefusesContradictionsAndWordsThatAreNoNumbers) {
  // Open MPI's own children see PMIx, too.
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
}  // namespace canzona
