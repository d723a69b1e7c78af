#include "canzona/comm/nccl/nccl_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "canzona/base/error.h"

namespace canzona::comm::nccl_launch_test {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

std::string refusal(const LocalPlace& place, int num_gpus) {
  try {
    choose_gpu(place, num_gpus, false);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing thrown";
}

Variables variables_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

TEST(NcclLaunch, TheLocalRankPicksTheGpu) {
  EXPECT_EQ(choose_gpu({.local_rank = 3, .num_local = 8}, 8, false), 3);
  EXPECT_EQ(choose_gpu({.local_rank = 1}, 2, false), 1);
  // srun --gpus-per-task gives every process its own GPU.
  EXPECT_EQ(choose_gpu({.local_rank = 3, .num_local = 8}, 1, false), 0);
}

TEST(NcclLaunch, FewerGpusThanRanksAreRefusedWithBothNumbers) {
  EXPECT_THAT(refusal({.local_rank = 0, .num_local = 8}, 4),
              HasSubstr("8 ranks and 4 GPUs"));
  EXPECT_THAT(refusal({.local_rank = 2}, 2), HasSubstr("3 ranks and 2 GPUs"));
  EXPECT_THAT(refusal({}, 0), HasSubstr("no GPU"));
}

TEST(NcclLaunch, RanksMayShareGpus) {
  EXPECT_EQ(choose_gpu({.local_rank = 5, .num_local = 8}, 2, true), 1);
  EXPECT_THROW(choose_gpu({}, 0, true), UsageError);
}

TEST(NcclLaunch, SetsTheOrderUnlessTheUserHas) {
  EXPECT_THAT(nccl_settings({}, variables_of({})),
              UnorderedElementsAre(Pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1"),
                                   Pair("CUDA_MODULE_LOADING", "EAGER")));
  EXPECT_TRUE(
      nccl_settings({}, variables_of({{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"},
                                      {"CUDA_MODULE_LOADING", "LAZY"}}))
          .empty());
}

TEST(NcclLaunch, ProcessesThatShareAGpuLookLikeMachines) {
  EXPECT_THAT(nccl_settings(
                  {.host = "node7", .rank = 3, .share = true, .version = 22809},
                  variables_of({{"NCCL_SOCKET_IFNAME", "eth0"},
                                {"CUDA_MODULE_LOADING", "EAGER"}})),
              UnorderedElementsAre(Pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1"),
                                   Pair("NCCL_HOSTID", "node7-3"),
                                   Pair("NCCL_NET", "Socket"),
                                   Pair("NCCL_P2P_NET_CHUNKSIZE", "524288")));
  EXPECT_THAT(nccl_settings({.host = "a", .share = true, .version = 23003},
                            variables_of({})),
              UnorderedElementsAre(Pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1"),
                                   Pair("CUDA_MODULE_LOADING", "EAGER"),
                                   Pair("NCCL_MULTI_RANK_GPU_ENABLE", "1")));
}

}  // namespace
}  // namespace canzona::comm::nccl_launch_test
