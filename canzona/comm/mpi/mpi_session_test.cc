// Runs on the ranks of an MPI program, as all tests of this program do.
#include "canzona/comm/mpi/mpi_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/comm/mpi/test_session.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::mpi_session_test {
namespace {

std::string sum_digest(Communicator& world) {
  std::vector<float> data = test_piece(world.rank(), 5000);
  world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
  std::vector<float> rounded = test_piece(world.rank(), 777);
  world.all_reduce(Reduction::kFp32SumOfBf16, bytes_of(rounded));
  data.insert(data.end(), rounded.begin(), rounded.end());
  return sha256_hex({reinterpret_cast<const char*>(data.data()),
                     data.size() * sizeof(float)});
}

TEST(MpiSession, KnowsItsRanks) {
  const MpiSession& session = test_session();
  const auto launch = find_mpi_launch();
  ASSERT_TRUE(launch) << "run this program by mpirun";
  EXPECT_EQ(session.rank(), launch->rank);
  EXPECT_EQ(session.size(), launch->num_ranks);
  EXPECT_THAT(session.nodes(), testing::SizeIs(session.size()));
  EXPECT_THAT(mpi_description(), testing::ContainsRegex("MPI"));
}

TEST(MpiSession, TheRanksOfOneNodeAreCounted) {
  const MpiSession& session = test_session();
  EXPECT_THAT(session.nodes(), testing::Each(session.nodes().front()));
  EXPECT_EQ(session.ranks_per_node(), session.size());
}

TEST(MpiSession, IsAloneInItsProcess) {
  EXPECT_THROW(MpiSession(), UsageError);
}

TEST(MpiSession, GivesAsManyWorldsAsAreAskedFor) {
  Communicator first(test_session().make_world(), cpu_wire_ops(), {}, "first");
  Communicator second(test_session().make_world(), cpu_wire_ops(), {},
                      "second");
  std::vector<int64_t> one = {1}, two = {2};
  first.all_reduce(Reduction::kInt64Sum, bytes_of(one));
  second.all_reduce(Reduction::kInt64Sum, bytes_of(two));
  EXPECT_EQ(one.front(), test_session().size());
  EXPECT_EQ(two.front(), 2 * test_session().size());
}

TEST(MpiSession, SumsHaveTheBitsOfThreads) {
  Communicator world(test_session().make_world(), cpu_wire_ops(), {}, "world");
  const std::string ours = sum_digest(world);
  std::vector<std::string> of_threads(static_cast<size_t>(world.size()));
  run_ranks(world.size(), [&](Communicator& threads) {
    of_threads[static_cast<size_t>(threads.rank())] = sum_digest(threads);
  });
  EXPECT_THAT(of_threads, testing::Each(ours));
}

}  // namespace
}  // namespace canzona::comm::mpi_session_test
