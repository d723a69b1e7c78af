// Ranks that fail or never arrive: every rank learns which and where, and none
// waits forever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/nccl/test_ranks_nccl.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona::comm::nccl_faults_test {
namespace {

using std::chrono_literals::operator""ms;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kFaultRanks = 4;

NcclTestOptions impatient() {
  NcclTestOptions options;
  options.communicator.deadline = 300ms;
  options.nccl.beat = 20ms;
  return options;
}

// Returns the error of every rank; "" if there was none.
std::vector<std::string> said_by_nccl_ranks(
    const NcclTestOptions& options,
    const std::function<void(NcclTestRank&, Communicator& dp)>& function) {
  std::mutex mutex;
  std::vector<std::string> said(kFaultRanks);
  try {
    run_nccl_ranks(kFaultRanks, options, [&](NcclTestRank& rank) {
      try {
        const auto dp =
            rank.world.split_ordered(0, rank.world.rank(), "dp", rank.lane,
                                     {.deadline = std::chrono::minutes(1)});
        function(rank, *dp);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        said[static_cast<size_t>(rank.world.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return said;
}

void add_on(Communicator& group, std::vector<int64_t>& data,
            std::string_view label) {
  group.all_reduce(Reduction::kInt64Sum, bytes_of(data), {.label = label});
}

// Issues operations until it learns that others have given up.
void go_on(Communicator& group, std::vector<int64_t>& data) {
  while (true) {
    std::this_thread::sleep_for(1ms);
    if (group.is_aborted()) add_on(group, data, "next");
  }
}

TEST(NcclFaults, ARankThatNeverComesIsNamedWithTheOperationAndItsLabel) {
  std::atomic<bool> told = false;
  const auto said = said_by_nccl_ranks(
      impatient(), [&](NcclTestRank& rank, Communicator& dp) {
        std::vector<int64_t> data = {1};
        add_on(dp, data, "first");
        rank.lane->wait();
        if (rank.world.rank() == 2) {
          while (!told) std::this_thread::sleep_for(1ms);
        } else {
          add_on(dp, data, "layer 3");
          try {
            go_on(dp, data);
          } catch (...) {
            told = true;
            throw;
          }
        }
      });
  for (const size_t rank : {0, 1, 3})
    EXPECT_THAT(said[rank],
                AllOf(HasSubstr("all_reduce #2 'layer 3' did not end within"),
                      HasSubstr("of dp"), HasSubstr("rank 2 is behind, at #1")))
        << rank;
}

// The watch of a rank that does not exist says nothing.
TEST(NcclFaults, ARankThatIsSilentIsNamed) {
  const auto threads = std::make_shared<ThreadWorld>(2, ThreadWorld::Options{});
  std::string said;
  std::atomic<bool> there = false, told = false;
  NcclOptions options;
  options.beat = 20ms;
  options.deadline = 300ms;
  const auto run = [&](int rank) {
    const auto lane = std::make_shared<TestLane>(TestLane::When::kLater, rank);
    NcclOptions own = options;
    // Rank 1's first heartbeat is long after the test.
    if (rank == 1) own.beat = std::chrono::hours(1);
    NcclSession session(make_thread_transport(threads, rank), stub_nccl(), own);
    Communicator world(session.make_world(), cpu_wire_ops(), {}, "world");
    try {
      const auto dp = world.split_ordered(0, rank, "dp", lane);
      std::vector<int64_t> data = {1};
      if (rank == 1) {
        there = true;
        while (!told) std::this_thread::sleep_for(1ms);
        return;
      }
      dp->all_reduce(Reduction::kInt64Sum, bytes_of(data),
                     {.label = "layer 3"});
      go_on(*dp, data);
    } catch (const PeerLost& error) {
      if (rank == 0) said = error.what();
      told = true;
    }
  };
  {
    std::jthread second([&] { run(1); });
    run(0);
  }
  EXPECT_THAT(said, AllOf(HasSubstr("the watch over NCCL"),
                          HasSubstr("rank 1 did not arrive"),
                          HasSubstr("all_reduce #1 'layer 3' of dp")));
}

TEST(NcclFaults, ARankThatThrowsEndsAllWithItsWords) {
  const auto said =
      said_by_nccl_ranks(impatient(), [](NcclTestRank& rank, Communicator& dp) {
        std::vector<int64_t> data = {1};
        if (rank.world.rank() == 1) throw NumericalError("no more paper");
        add_on(dp, data, "layer 3");
        go_on(dp, data);
      });
  for (const size_t rank : {0, 2, 3})
    EXPECT_THAT(said[rank], HasSubstr("rank 1 failed: no more paper"));
}

// NCCL reports that a rank is gone before anybody knows which.
TEST(NcclFaults, ARankWhoseConnectionsCloseIsNamed) {
  std::atomic<int> num_founded = 0;
  const auto said = said_by_nccl_ranks(
      impatient(), [&](NcclTestRank& rank, Communicator& dp) {
        std::vector<int64_t> data = {1};
        ++num_founded;
        if (rank.world.rank() == 1) {
          while (num_founded < kFaultRanks) std::this_thread::sleep_for(1ms);
          close_stub_connections(true);
          std::this_thread::sleep_for(50ms);
          rank.session.abort("rank 1 failed: no more paper");
          return;
        }
        while (true) add_on(dp, data, "layer 3");
      });
  close_stub_connections(false);
  for (const size_t rank : {0, 2, 3})
    EXPECT_THAT(said[rank], HasSubstr("rank 1 failed: no more paper"));
}

TEST(NcclFaults, AnotherOperationIsNamedWhereCollectivesAreChecked) {
  NcclTestOptions options = impatient();
  options.communicator.check_collectives = true;
  const auto said =
      said_by_nccl_ranks(options, [](NcclTestRank& rank, Communicator& dp) {
        std::vector<int64_t> data = {1, 2};
        if (rank.world.rank() == 3)
          dp.broadcast(0, bytes_of(data), {.label = "layer 4"});
        else
          add_on(dp, data, "layer 3");
      });
  for (const std::string& words : said)
    EXPECT_THAT(words, AllOf(HasSubstr("all_reduce"), HasSubstr("broadcast"),
                             HasSubstr("rank 3")));
}

// Either NCCL notices by itself, or it hangs and the deadline passes.
TEST(NcclFaults, AnotherOperationEndsAllWithoutChecks) {
  const auto said =
      said_by_nccl_ranks(impatient(), [](NcclTestRank& rank, Communicator& dp) {
        std::vector<int64_t> data = {1, 2};
        if (rank.world.rank() == 3)
          dp.broadcast(0, bytes_of(data), {.label = "layer 4"});
        else
          add_on(dp, data, "layer 3");
        go_on(dp, data);
      });
  EXPECT_THAT(said, Each(AnyOf(HasSubstr("NCCL"), HasSubstr("layer"))));
}

TEST(NcclFaults, ARankThatDoesNotFoundAGroupIsNoticed) {
  NcclTestOptions options = impatient();
  std::atomic<int> num_told = 0;
  std::mutex mutex;
  std::vector<std::string> said;
  const auto found = [&](NcclTestRank& rank) {
    try {
      if (rank.world.rank() == 2) {
        while (num_told < 3) std::this_thread::sleep_for(1ms);
        return;
      }
      rank.world.split_ordered(0, rank.world.rank(), "dp", rank.lane,
                               {.label = "founding"});
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      said.emplace_back(error.what());
      ++num_told;
      throw;
    }
  };
  EXPECT_THROW(run_nccl_ranks(kFaultRanks, options, found), PeerLost);
  ASSERT_EQ(said.size(), 3u);
  EXPECT_THAT(said, Each(AllOf(HasSubstr("split"), HasSubstr("rank 2"))));
}

// The process would be ended; the test is notified instead.
TEST(NcclFaults, AnAbortThatDoesNotReturnEndsTheProcess) {
  std::atomic<int> num_ended = 0;
  std::string why;
  std::mutex mutex;
  NcclTestOptions options = impatient();
  options.nccl.patience = 50ms;
  options.nccl.end_process = [&](const std::string& words) {
    const std::lock_guard lock(mutex);
    why = words;
    if (++num_ended == kFaultRanks) hang_stub_aborts(false);
  };
  hang_stub_aborts(true);
  said_by_nccl_ranks(options, [&](NcclTestRank& rank, Communicator& dp) {
    std::vector<int64_t> data = {1};
    if (rank.world.rank() != 2) add_on(dp, data, "layer 3");
    // Memory that NCCL still uses is kept.
    while (num_ended < kFaultRanks) std::this_thread::sleep_for(1ms);
    rank.lane->wait();
  });
  EXPECT_EQ(num_ended, kFaultRanks);
  EXPECT_THAT(why, AllOf(HasSubstr("rank 2 is behind"),
                         HasSubstr("did not end within 50.0 ms")));
}

}  // namespace
}  // namespace canzona::comm::nccl_faults_test
