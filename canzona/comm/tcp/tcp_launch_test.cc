#include "canzona/comm/tcp/tcp_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "canzona/base/error.h"

namespace canzona::comm::tcp_launch_test {
namespace {

using Environment = std::map<std::string, std::string>;

std::optional<TcpLaunch> find_in(const Environment& environment) {
  return find_tcp_launch([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

const Environment kOurs = {{"CANZONA_RANK", "2"},
                           {"CANZONA_NUM_RANKS", "4"},
                           {"CANZONA_RENDEZVOUS", "127.0.0.1:4000"},
                           {"CANZONA_JOB_TOKEN", "abc"}};
const Environment kTorchrun = {{"TORCHELASTIC_RUN_ID", "run"},
                               {"RANK", "1"},
                               {"WORLD_SIZE", "2"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "29500"}};

TEST(TcpLaunch, KnowsItsLaunchers) {
  const auto ours = find_in(kOurs);
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->rank, 2);
  EXPECT_EQ(ours->num_ranks, 4);
  EXPECT_EQ(to_string(ours->meeting), "127.0.0.1:4000");
  EXPECT_EQ(ours->token, "abc");
  const auto torchrun = find_in(kTorchrun);
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->launcher, "torchrun");
  EXPECT_EQ(to_string(torchrun->meeting), "node1:29501");
  EXPECT_EQ(torchrun->token, "run");
  EXPECT_EQ(torchrun->num_local, 2);
  const auto srun = find_in({{"SLURM_STEP_ID", "0"},
                             {"SLURM_JOB_ID", "77"},
                             {"SLURM_PROCID", "3"},
                             {"SLURM_STEP_NUM_TASKS", "8"}});
  ASSERT_TRUE(srun);
  EXPECT_EQ(srun->rank, 3);
  EXPECT_EQ(srun->token, "77.0");
  EXPECT_TRUE(srun->meeting.host.empty());
  EXPECT_FALSE(find_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(find_in({{"SLURM_JOB_ID", "77"}}));
}

TEST(TcpLaunch, TellsARanksNumberOnItsMachineIfTheLauncherDoes) {
  const auto local_rank = [](Environment environment, const char* name,
                             const char* value) {
    environment[name] = value;
    return find_in(environment)->local_rank;
  };
  EXPECT_EQ(find_in(kOurs)->local_rank, -1);
  EXPECT_EQ(local_rank(kOurs, "CANZONA_LOCAL_RANK", "1"), 1);
  // All ranks are on this machine.
  EXPECT_EQ(local_rank(kOurs, "CANZONA_NUM_LOCAL", "4"), 2);
  EXPECT_EQ(local_rank(kTorchrun, "LOCAL_RANK", "1"), 1);
  EXPECT_EQ(local_rank({{"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "3"},
                        {"SLURM_STEP_NUM_TASKS", "8"}},
                       "SLURM_LOCALID", "1"),
            1);
}

TEST(TcpLaunch, NamesWhatIsMissingOrWrong) {
  const auto refusal = [](Environment environment, const char* name,
                          const char* value) -> std::string {
    environment.erase(name);
    if (value != nullptr) environment[name] = value;
    try {
      find_in(environment);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_THAT(refusal(kTorchrun, name, nullptr), testing::HasSubstr(name));
  for (const char* name : {"CANZONA_NUM_RANKS", "CANZONA_RENDEZVOUS"})
    EXPECT_THAT(refusal(kOurs, name, nullptr),
                testing::AllOf(testing::HasSubstr("a script"),
                               testing::HasSubstr(name)));
  EXPECT_THAT(refusal(kOurs, "CANZONA_RANK", "two"),
              testing::HasSubstr("CANZONA_RANK"));
  EXPECT_THAT(refusal(kOurs, "CANZONA_RENDEZVOUS", "nowhere"),
              testing::HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal(kTorchrun, "MASTER_PORT", "65535"),
              testing::HasSubstr("MASTER_PORT"));
  Environment both = kOurs;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_THAT(refusal(both, "X", nullptr),
              testing::HasSubstr("contradict each other"));
}

}  // namespace
}  // namespace canzona::comm::tcp_launch_test
