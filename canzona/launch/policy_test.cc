#include "canzona/launch/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

namespace canzona::policy_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

ProcessEnd exited(int status) { return {.exit_status = status}; }
ProcessEnd signalled(int signal) { return {.signal = signal}; }

// Ranks in the order in which they ended.
AttemptResult ended(std::vector<std::pair<int, ProcessEnd>> in_order) {
  AttemptResult result;
  result.ranks.resize(in_order.size());
  for (size_t i = 0; i < in_order.size(); ++i) {
    RankEnd& rank = result.ranks[static_cast<size_t>(in_order[i].first)];
    rank.rank = in_order[i].first;
    rank.started = true;
    rank.end = in_order[i].second;
    rank.order = static_cast<int>(i);
  }
  return result;
}

TEST(Cause, OfARunThatIsDoneIsNone) {
  const Cause cause = cause_of(ended({{0, exited(0)}, {1, exited(0)}}));
  EXPECT_EQ(cause.status, 0);
  EXPECT_FALSE(is_worth_restarting(cause));
}

TEST(Cause, R1IsTheRankThatWasKilledAndNotThoseWhoLostIt) {
  const Cause cause = cause_of(ended({{2, signalled(SIGKILL)},
                                      {0, exited(4)},
                                      {1, exited(4)},
                                      {3, exited(4)}}));
  EXPECT_EQ(cause.words, "rank 2 lost (SIGKILL)");
  EXPECT_EQ(cause.status, 4);
  EXPECT_TRUE(is_worth_restarting(cause));
}

TEST(Cause, R1IsFoundAlsoWhereAnotherWasSeenToEndFirst) {
  const Cause cause =
      cause_of(ended({{0, exited(4)}, {1, signalled(SIGKILL)}}));
  EXPECT_EQ(cause.words, "rank 1 lost (SIGKILL)");
}

TEST(Cause, R5NamesAllThatWereLostAlike) {
  const Cause cause = cause_of(ended({{3, signalled(SIGKILL)},
                                      {1, signalled(SIGKILL)},
                                      {0, exited(4)},
                                      {2, exited(4)}}));
  EXPECT_EQ(cause.words, "ranks 1, 3 lost (SIGKILL)");
}

TEST(Cause, R5OfAnMpirunThatWasKilledIsThat) {
  AttemptResult result = ended({{0, {}}, {1, {}}});
  result.launcher = signalled(SIGKILL);
  const Cause cause = cause_of(result);
  EXPECT_EQ(cause.words, "mpirun ended before its ranks (SIGKILL)");
  EXPECT_TRUE(is_worth_restarting(cause));
}

TEST(Cause, OfAnMpirunThatStartsNothingIsNotTriedAgain) {
  AttemptResult result;
  result.ranks.resize(2);
  result.launcher = exited(1);
  const Cause cause = cause_of(result);
  EXPECT_EQ(cause.words, "mpirun did not start any rank (exit status 1)");
  EXPECT_EQ(cause.status, 1);
  EXPECT_FALSE(is_worth_restarting(cause));
}

TEST(Cause, R6NamesEveryKindOfEnd) {
  const auto words = [](const ProcessEnd& end) {
    return cause_of(ended({{1, end}, {0, exited(4)}})).words;
  };
  EXPECT_EQ(words(signalled(SIGSEGV)), "rank 1 lost (SIGSEGV)");
  EXPECT_EQ(words({.signal = SIGABRT, .dumped_core = true}),
            "rank 1 lost (SIGABRT (core dumped))");
  EXPECT_EQ(words(exited(0)), "rank 1 ended before the others (exit status 0)");
  EXPECT_EQ(words(exited(1)), "rank 1 failed (exit status 1)");
}

TEST(Cause, R7IsTheRankThatHadToBeKilled) {
  AttemptResult result =
      ended({{0, exited(4)}, {1, exited(4)}, {2, signalled(SIGKILL)}});
  result.ranks[2].killed = "stopped";
  const Cause cause = cause_of(result);
  EXPECT_EQ(cause.words, "rank 2 stopped");
  EXPECT_TRUE(is_worth_restarting(cause));
}

TEST(Cause, FailuresThatWouldComeAgainAreNotTriedAgain) {
  for (const int status : {1, 2, 3, 5, 6, 130, 143}) {
    const Cause cause = cause_of(ended({{0, exited(4)}, {1, exited(status)}}));
    EXPECT_EQ(cause.status, status);
    EXPECT_FALSE(is_worth_restarting(cause)) << status;
  }
  EXPECT_EQ(cause_of(ended({{0, signalled(SIGINT)}})).status, 130);
  EXPECT_EQ(cause_of(ended({{0, signalled(SIGTERM)}})).status, 143);
}

TEST(Cause, R12ARequestToEndDecidesAboutTheStatusWhoeverIsLostMeanwhile) {
  AttemptResult result = ended({{1, signalled(SIGSEGV)}, {0, exited(4)}});
  result.signal = SIGTERM;
  Cause cause = cause_of(result);
  EXPECT_EQ(cause.status, 143);
  EXPECT_EQ(cause.words, "rank 1 lost (SIGSEGV)");
  EXPECT_EQ(cause.asked, SIGTERM);
  EXPECT_FALSE(is_worth_restarting(cause));
  result.signal = SIGINT;
  EXPECT_EQ(cause_of(result).status, 130);
  result.signal = SIGHUP;
  EXPECT_EQ(cause_of(result).status, 143);
  // A failure that would recur is reported as it is, and a run that is done is
  // done.
  AttemptResult refused = ended({{0, exited(6)}, {1, exited(4)}});
  refused.signal = SIGTERM;
  EXPECT_EQ(cause_of(refused).status, 6);
  AttemptResult done = ended({{0, exited(0)}, {1, exited(0)}});
  done.signal = SIGTERM;
  EXPECT_EQ(cause_of(done).status, 0);
}

TEST(Restart, R11CountsTheRanksThatRemain) {
  AttemptResult result = ended({{2, signalled(SIGKILL)},
                                {0, exited(4)},
                                {1, exited(4)},
                                {3, exited(4)}});
  EXPECT_EQ(num_remaining(result), 3);
  result.ranks[0].killed = "stopped";
  EXPECT_EQ(num_remaining(result), 2);
}

TEST(Restart, PausesGrowUpToABound) {
  EXPECT_EQ(pause_before(1), milliseconds(250));
  EXPECT_EQ(pause_before(2), milliseconds(500));
  EXPECT_EQ(pause_before(3), milliseconds(1000));
  EXPECT_EQ(pause_before(1000), milliseconds(10000));
}

TEST(Restart, ResumesInPlaceOfWhatTheCommandSaid) {
  EXPECT_THAT(resuming({"train", "--run", "a"}),
              ElementsAre("train", "--run", "a", "--resume", "auto"));
  EXPECT_THAT(resuming({"train", "--resume", "100", "--run", "a"}),
              ElementsAre("train", "--run", "a", "--resume", "auto"));
  EXPECT_THAT(resuming({"train", "--resume=100", "--overwrite"}),
              ElementsAre("train", "--resume", "auto"));
}

TEST(Restart, KnowsWhatACommandResumesFrom) {
  EXPECT_EQ(resume_wish({"train", "--run", "a"}), "");
  EXPECT_EQ(resume_wish({"train", "--resume", "100", "--run", "a"}), "100");
  EXPECT_EQ(resume_wish({"train", "--resume=b/ckpt"}), "b/ckpt");
  EXPECT_EQ(resume_wish({"train", "--resume"}), "");
}

TEST(Restart, ResumesOnlyWhatTheJobHasSaved) {
  const Words fresh{"train", "--run", "a"};
  const Words other{"train", "--run", "a", "--resume", "b/ckpt/step_00000035"};
  const Words replacing{"train", "--run", "a", "--overwrite"};
  const Words resumed{"train", "--run", "a", "--resume", "auto"};
  for (const Words& words : {fresh, other, replacing, resumed})
    for (const bool had : {false, true})
      EXPECT_EQ(
          restart_words(words, {.had_checkpoint = had, .has_saved = true}),
          resumed);
  for (const Words& words : {other, replacing, resumed})
    for (const bool had : {false, true})
      EXPECT_EQ(restart_words(words, {.had_checkpoint = had}), words);
  // A run that was refused because of another one stays refused.
  EXPECT_EQ(restart_words(fresh, {.had_checkpoint = true}), fresh);
  EXPECT_EQ(restart_words(fresh, {}), resumed);
  EXPECT_EQ(restart_words(fresh, {.is_empty = true}), fresh);
}

TEST(Restart, OverwritesWhatTheJobItselfHasLeft) {
  const Words other{"train", "--resume", "b/ckpt/step_00000035"};
  EXPECT_THAT(
      restart_words(other, {.has_remains = true}),
      ElementsAre("train", "--resume", "b/ckpt/step_00000035", "--overwrite"));
  for (const Words& words :
       {Words{"train", "--resume", "auto"}, Words{"train", "--overwrite"}})
    EXPECT_EQ(restart_words(words, {.has_remains = true}), words);
}

TEST(ErrorLines, KeepsTheLastOfEveryRank) {
  ErrorLines lines;
  lines.add(1, "first");
  for (int i = 0; i < 1000; ++i) lines.add(0, std::to_string(i));
  ASSERT_EQ(lines.all().size(), 65u);
  EXPECT_EQ(lines.all().front().words, "first");
  EXPECT_EQ(lines.all()[1].words, "936");
  EXPECT_EQ(lines.all().back().words, "999");
  lines.add(2, std::string(100000, 'x'));
  EXPECT_EQ(lines.all().back().words.size(), 4096u);
}

TEST(Words, OperationsAreFoundInWhatSurvivorsSay) {
  EXPECT_EQ(operation_in("rank 1 of world: reduce_scatter_v #35 'layers.3' "
                         "given up: rank 2 has ended without notice"),
            "reduce_scatter_v 'layers.3'");
  EXPECT_EQ(operation_in("rank 0 of world: split #3: rank 2 did not come"),
            "split");
  EXPECT_EQ(operation_in("no room on the disk"), "");
  EXPECT_EQ(operation_in("x # y #"), "");
  EXPECT_EQ(operation_in(" #7 'a"), "");
}

TEST(Mpirun, GetsWhatItNeedsHere) {
  const Words words =
      mpirun_words({.path = "/usr/bin/mpirun", .num_ranks = 4, .num_cpus = 2});
  EXPECT_THAT(words, testing::Contains("--oversubscribe"));
  EXPECT_EQ(words.back(), "4");
  EXPECT_THAT(mpirun_words({.path = "m", .num_ranks = 2, .num_cpus = 2}),
              testing::Not(testing::Contains("--oversubscribe")));
  EXPECT_THAT(mpirun_words({.path = "m", .is_open_mpi = false, .num_ranks = 8}),
              ElementsAre("m", "-n", "8"));
}

TEST(Mpirun, IsToldThatItMayRunAsRoot) {
  EXPECT_EQ(mpirun_variables(true, true).size(), 2u);
  EXPECT_TRUE(mpirun_variables(true, false).empty());
  EXPECT_TRUE(mpirun_variables(false, true).empty());
}

std::string launcher_in(const std::map<std::string, std::string>& variables) {
  return other_launcher([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(OtherLauncher, IsKnownByItsVariables) {
  EXPECT_EQ(launcher_in({}), "");
  EXPECT_EQ(launcher_in({{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "0"}}),
            "torchrun");
  EXPECT_EQ(launcher_in({{"CANZONA_RANK", "0"}}), "canzona launch");
  EXPECT_EQ(launcher_in({{"OMPI_COMM_WORLD_RANK", "0"}}), "mpirun");
  EXPECT_EQ(launcher_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}), "mpirun");
  std::map<std::string, std::string> step = {{"SLURM_STEP_ID", "0"},
                                             {"SLURM_PROCID", "0"},
                                             {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(launcher_in(step), "srun");
  // A shell started by `srun --pty`, and an allocation without a step.
  step["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(launcher_in(step), "");
  EXPECT_EQ(launcher_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), "");
}

}  // namespace
}  // namespace canzona::policy_test
