#include "canzona/comm/nccl/nccl_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/units.h"
#include "canzona/comm/nccl/nccl_launch.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/nccl/test_ranks_nccl.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona::comm::nccl_session_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Communicator> everyone(NcclTestRank& rank, std::string name) {
  return rank.world.split_ordered(0, rank.world.rank(), std::move(name),
                                  rank.lane);
}

// The documentation as a test: an operation is issued, and what follows it in
// the lane finds its result.
TEST(NcclSession, OperationsHaveTheirPlaceInALane) {
  run_nccl_ranks(4, {}, [](NcclTestRank& rank) {
    const auto dp = everyone(rank, "dp");
    ASSERT_EQ(dp->lane(), rank.lane.get());
    const int64_t own = rank.world.rank();
    std::vector<int64_t> sum = {0}, copy = {0};
    rank.lane->issue([&] { sum[0] = own; });
    dp->all_reduce(Reduction::kInt64Sum, bytes_of(sum));
    rank.lane->issue([&] { copy = sum; });
    rank.lane->wait();
    EXPECT_EQ(copy[0], 0 + 1 + 2 + 3);
  });
}

TEST(NcclSession, TheWorldItselfIsOfTheHostsMemory) {
  const int allocated = num_stub_allocated();
  run_nccl_ranks(2, {}, [&](NcclTestRank& rank) {
    EXPECT_EQ(rank.world.lane(), nullptr);
    EXPECT_EQ(num_stub_allocated(), allocated);
    std::vector<int64_t> sum = {1};
    rank.world.all_reduce(Reduction::kInt64Sum, bytes_of(sum));
    EXPECT_EQ(sum[0], 2);
    EXPECT_EQ(rank.session.num_communicators(), 0);
  });
}

TEST(NcclSession, HasTwoCommunicatorsAtMostForASetOfRanksAndNoneForOne) {
  run_nccl_ranks(4, {}, [](NcclTestRank& rank) {
    std::vector<std::unique_ptr<Communicator>> groups;
    const int own = rank.world.rank();
    groups.push_back(rank.world.split_ordered(own, 0, "alone", rank.lane));
    EXPECT_EQ(rank.session.num_communicators(), 0);
    for (int round = 1; round < 5; ++round) {
      groups.push_back(everyone(rank, "all"));
      EXPECT_EQ(rank.session.num_communicators(), std::min(round, 2));
    }
    groups.push_back(rank.world.split_ordered(own % 2, own, "half", rank.lane));
    EXPECT_EQ(rank.session.num_communicators(), 3);
    for (const auto& group : groups) {
      std::vector<int64_t> sum = {1};
      group->all_reduce(Reduction::kInt64Sum, bytes_of(sum));
      rank.lane->wait();
      EXPECT_EQ(sum[0], group->size());
    }
  });
}

TEST(NcclSession, AGroupOfALaneSplitsIntoGroupsOfTheSame) {
  run_nccl_ranks(4, {}, [](NcclTestRank& rank) {
    const auto all = everyone(rank, "all");
    const auto pair = all->split(all->rank() / 2, all->rank(), "pair");
    EXPECT_EQ(pair->lane(), rank.lane.get());
    std::vector<int64_t> sum = {all->rank()};
    pair->all_reduce(Reduction::kInt64Sum, bytes_of(sum));
    rank.lane->wait();
    EXPECT_EQ(sum[0], all->rank() < 2 ? 1 : 5);
  });
}

// Random delays on lanes and hosts do not change a bit of sums of many
// segments.
TEST(NcclSession, SumsHaveTheBitsOfTheTreeWhateverIsLate) {
  for (const int num_ranks : {2, 4, 7})
    for (const bool bf16 : {false, true}) {
      NcclTestOptions options;
      options.communicator.segment_bytes = 64;
      options.delay = [](int rank) {
        thread_local uint64_t turn = 0;
        const uint64_t bits = bits_at(static_cast<uint64_t>(rank), ++turn);
        if (bits % 8 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(bits % 97));
      };
      run_nccl_ranks(num_ranks, options, [&](NcclTestRank& rank) {
        const auto dp = everyone(rank, "dp");
        const int64_t each = 41;
        const std::vector<int64_t> counts(static_cast<size_t>(num_ranks), each);
        std::vector<float> input = test_piece(dp->rank(), each * num_ranks);
        std::vector<float> sum(static_cast<size_t>(each));
        dp->reduce_scatter_v(
            bf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum,
            bytes_of(input), counts, bytes_of(sum));
        rank.lane->wait();
        for (int64_t i = 0; i < each; ++i)
          ASSERT_TRUE(
              same_bits(sum[static_cast<size_t>(i)],
                        oracle_at(num_ranks, each * dp->rank() + i, bf16)));
      });
    }
}

TEST(NcclSession, EqualPiecesIntegersAndBroadcastsGoAtOnce) {
  StubRecord record(2);
  run_nccl_ranks(2, {}, [](NcclTestRank& rank) {
    const auto dp = everyone(rank, "dp");
    std::vector<int64_t> data = {dp->rank(), dp->rank()};
    const std::vector<int64_t> equal = {8, 8}, unequal = {0, 8};
    const auto own =
        bytes_of(data).subspan(8 * static_cast<size_t>(dp->rank()), 8);
    dp->all_gather_v(own, equal, bytes_of(data));
    dp->all_reduce(Reduction::kInt64Max, bytes_of(data));
    rank.lane->wait();
    dp->broadcast(1, bytes_of(data));
    rank.lane->wait();
    EXPECT_EQ(data, (std::vector<int64_t>{0, 1}));
    dp->all_gather_v(dp->rank() == 0 ? std::span<std::byte>() : own, unequal,
                     bytes_of(data).first(8));
    rank.lane->wait();
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(dp->traffic().of(Operation::kAllGather).sent,
              dp->rank() == 0 ? 8 : 16);
  });
  std::vector<std::string> words;
  for (const StubLaunch& launch : record.of(0)) words.push_back(launch.what);
  EXPECT_THAT(words, testing::ElementsAre("all_gather 8", "all_reduce 2",
                                          "broadcast 16", "messages"));
}

TEST(NcclSession, ChecksVersionsAndDevices) {
  run_nccl_ranks(2, {}, [](NcclTestRank&) {});
}

// A control plane of threads, for sessions that fail to start.
std::vector<std::string> errors_of(
    int num_ranks, const std::function<NcclOptions(int rank)>& options_of) {
  const auto threads =
      std::make_shared<ThreadWorld>(num_ranks, ThreadWorld::Options{});
  std::vector<std::string> said(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < num_ranks; ++rank)
      ranks.emplace_back([&, rank] {
        try {
          const NcclOptions options = options_of(rank);
          NcclSession session(make_thread_transport(threads, rank), stub_nccl(),
                              options);
          session.finish();
        } catch (const UsageError& error) {
          said[static_cast<size_t>(rank)] = error.what();
        }
      });
  }
  return said;
}

TEST(NcclSession, NamesTwoVersionsThatDiffer) {
  for (const std::string& words : errors_of(3, [](int rank) {
         set_stub_version(rank == 2 ? 22707 : 22809);
         return NcclOptions{};
       }))
    EXPECT_THAT(words, AllOf(HasSubstr("rank 0 has NCCL 2.28.9"),
                             HasSubstr("rank 2 has NCCL 2.27.7")));
}

TEST(NcclSession, NamesTwoKindsOfDeviceThatDiffer) {
  for (const std::string& words : errors_of(2, [](int rank) {
         NcclOptions options;
         options.device = rank == 0 ? "NVIDIA H200" : "NVIDIA A100";
         return options;
       }))
    EXPECT_THAT(words, AllOf(HasSubstr("rank 0 has the GPU NVIDIA H200"),
                             HasSubstr("rank 1 has the GPU NVIDIA A100")));
}

TEST(NcclSession, RefusesTwoRanksOnOneDeviceUnlessTheyShareIt) {
  const auto said_if = [](bool share) {
    return errors_of(4, [&](int rank) {
      NcclOptions options;
      options.device_id = rank < 2 ? "node1 GPU-a" : "node2 GPU-a";
      if (rank == 1) options.device_id = "node1 GPU-b";
      options.share_devices = share;
      return options;
    });
  };
  EXPECT_THAT(
      said_if(false),
      testing::Each(AllOf(HasSubstr("ranks 2 and 3 have the same GPU"),
                          HasSubstr("node2 GPU-a"), HasSubstr("2 of 4 ranks"),
                          HasSubstr("share-gpu=on"))));
  EXPECT_THAT(said_if(true), testing::Each(""));
}

TEST(NcclSession, RefusesWhatIsTooOld) {
  EXPECT_THAT(errors_of(1,
                        [](int) {
                          set_stub_version(22605);
                          return NcclOptions{};
                        })[0],
              AllOf(HasSubstr("NCCL 2.26.5 is too old"), HasSubstr("2.27.7")));
}

// Groups that share a communicator register shared memory once. Ranks with
// different lengths register separately.
TEST(NcclSession, RegistersMemoryOnceUntilItsGroupsEnd) {
  for (const bool plain : {false, true}) {
    NcclTestOptions options;
    options.nccl.plain_memory = plain;
    // Aborted ranks of other tests have left some.
    const int allocated = num_stub_allocated();
    const StubMemoryUse before = take_stub_memory_use();
    run_nccl_ranks(2, options, [&](NcclTestRank& rank) {
      std::byte* memory = rank.world.allocate(4096);
      ASSERT_EQ(memory == nullptr, plain);
      std::vector<std::byte> own(4096);
      if (plain) memory = own.data();
      {
        std::vector<std::unique_ptr<Communicator>> groups;
        for (int i = 0; i < 4; ++i) {
          groups.push_back(everyone(rank, "dp"));
          groups.back()->register_memory({memory, 4096}, {.same_places = true});
          groups.back()->register_memory(
              {memory, rank.world.rank() == 0 ? 64UL : 96UL}, {});
        }
        const std::vector<float> sum = test_piece(rank.world.rank(), 900);
        std::memcpy(memory, sum.data(), 3600);
        for (const auto& group : groups)
          group->all_reduce(Reduction::kFp32Sum, {memory, 3600});
        rank.lane->wait();
        rank.world.barrier();
        // Each of two ranks registers its memory and a prefix of it with two
        // communicators, and the staging of each of four groups.
        if (rank.world.rank() == 0 && !plain) {
          const StubMemoryUse use = take_stub_memory_use();
          EXPECT_EQ(use.num_registered - before.num_registered,
                    2 * (2 + 2 + 4));
          EXPECT_EQ(use.num_windows - before.num_windows, 2 * (2 + 4));
          EXPECT_GT(use.num_looks, 0);
          EXPECT_EQ(use.num_unregistered, 0)
              << use.last_unregistered << " " << use.last_bytes;
        }
        rank.world.barrier();
      }
      if (!plain) rank.world.release(memory);
    });
    const StubMemoryUse use = take_stub_memory_use();
    EXPECT_EQ(use.num_unregistered > 0, plain);
    EXPECT_EQ(use.num_freed_too_soon, 0);
    EXPECT_EQ(use.num_registered, before.num_registered);
    EXPECT_EQ(num_stub_allocated(), allocated);
  }
}

}  // namespace
}  // namespace canzona::comm::nccl_session_test
