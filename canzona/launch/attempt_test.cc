// Ranks here are shells; the test forks their keepers, and "mpirun" is a
// process that ends when the keepers may.
#include "canzona/launch/attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "canzona/base/text.h"
#include "canzona/launch/rank_folder.h"

namespace canzona::attempt_test {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

class Listener : public AttemptObserver {
 public:
  void on_line(int rank, bool is_error, std::string_view line) override {
    lines.push_back(cat(rank, is_error ? "! " : ": ", line));
  }
  void on_signal(int signal) override { signals.push_back(signal); }
  Words lines;
  std::vector<int> signals;
};

struct Ranks {
  Words scripts;  // one per rank
  std::string folder = {};
};

// Forks the keepers and returns the command of an "mpirun".
Words start(Ranks& ranks, const std::string& folder) {
  ranks.folder = folder;
  for (size_t rank = 0; rank < ranks.scripts.size(); ++rank) {
    if (::fork() != 0) continue;
    // Closes the launcher's files, which its real keepers do not have.
    ::close_range(3, ~0U, 0);
    const int status = run_as_rank({folder,
                                    static_cast<int>(rank),
                                    {"/bin/sh", "-c", ranks.scripts[rank]}});
    ::_exit(status);
  }
  return {"/bin/cat", folder + "/hold"};
}

AttemptResult run(Ranks& ranks, Listener& listener,
                  milliseconds grace = milliseconds(60000)) {
  SignalQueue signals;
  adopt_orphans();
  return run_attempt(
      {.num_ranks = static_cast<int>(ranks.scripts.size()),
       .has_keepers = true,
       .words = [&](const std::string& folder) { return start(ranks, folder); },
       .grace = grace},
      signals, listener);
}

Words ends(const AttemptResult& result) {
  Words out;
  for (const RankEnd& rank : result.ranks) out.push_back(to_string(rank.end));
  return out;
}

TEST(Attempt, TellsWhatEveryRankSaysAndHowItEnds) {
  Ranks ranks{{"echo one; echo two >&2", "printf three; exit 3"}};
  Listener listener;
  const AttemptResult result = run(ranks, listener);
  EXPECT_THAT(ends(result), ElementsAre("exit status 0", "exit status 3"));
  EXPECT_THAT(listener.lines,
              UnorderedElementsAre("0: one", "0! two", "1: three"));
  EXPECT_FALSE(std::filesystem::exists(ranks.folder));
}

TEST(Attempt, R6NamesTheSignalOfTheRankThatDiedFirst) {
  Ranks ranks{{"sleep 0.5; exit 4", "kill -SEGV $$"}};
  Listener listener;
  const AttemptResult result = run(ranks, listener);
  EXPECT_EQ(result.ranks[1].end.signal, SIGSEGV);
  EXPECT_EQ(result.ranks[1].order, 0);
  EXPECT_EQ(result.ranks[0].end.exit_status, 4);
}

TEST(Attempt, R7KillsWhoeverHasStoppedWhenTheOthersAreGone) {
  Ranks ranks{{"exit 4", "kill -STOP $$"}};
  Listener listener;
  const AttemptResult result = run(ranks, listener, milliseconds(300));
  EXPECT_EQ(result.ranks[1].killed, "stopped");
  EXPECT_EQ(result.ranks[1].end.signal, SIGKILL);
  EXPECT_EQ(result.ranks[0].killed, "");
}

TEST(Attempt, R5LeavesNoProcessBehind) {
  // A grandchild with its own session, which closes its pipes.
  Ranks ranks{{"setsid sh -c 'echo $$; exec sleep 1000 >&- 2>&-' & sleep 0.5"}};
  Listener listener;
  run(ranks, listener);
  ASSERT_EQ(listener.lines.size(), 1u);
  const pid_t left = std::stoi(listener.lines.front().substr(3));
  EXPECT_EQ(::kill(left, 0), -1) << listener.lines.front();
}

TEST(Attempt, R5AMpirunThatIsKilledEndsItsRanks) {
  Ranks ranks{{"echo here; exec sleep 1000"}};
  Listener listener;
  SignalQueue signals;
  adopt_orphans();
  const AttemptResult result = run_attempt(
      {.num_ranks = 1,
       .has_keepers = true,
       .words =
           [&](const std::string& folder) {
             start(ranks, folder);
             return Words{"/bin/sh", "-c", "sleep 0.5; kill -KILL $$"};
           }},
      signals, listener);
  EXPECT_EQ(result.launcher.signal, SIGKILL);
  EXPECT_FALSE(result.ranks[0].end.is_known());
  EXPECT_TRUE(result.ranks[0].started);
}

TEST(Attempt, R12PassesSignalsOnToEveryRank) {
  // The second rank signals the launcher, as a user would.
  const std::string waits =
      "trap 'echo term; exit 143' TERM; echo ready; while :; do sleep 0.05; "
      "done";
  Ranks ranks{{waits, cat("(sleep 0.5; kill -USR1 ", ::getpid(),
                          "; sleep 0.3; kill -TERM ", ::getpid(),
                          ") & trap 'echo usr' USR1; ", waits)}};
  ranks.scripts[0] = "trap 'echo usr' USR1; " + ranks.scripts[0];
  Listener listener;
  const AttemptResult result = run(ranks, listener);
  EXPECT_THAT(ends(result), ElementsAre("exit status 143", "exit status 143"));
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_THAT(listener.signals, ElementsAre(SIGUSR1, SIGTERM));
  for (const char* line : {"0: usr", "1: usr", "0: term", "1: term"})
    EXPECT_THAT(listener.lines, Contains(line));
}

TEST(Attempt, WithoutKeepersWatchesOneProcess) {
  Listener listener;
  SignalQueue signals;
  adopt_orphans();
  const AttemptResult result = run_attempt(
      {.num_ranks = 4,
       .words =
           [](const std::string& folder) {
             return Words{"/bin/sh", "-c", "echo \"$1\" >&2; exit 6", "sh",
                          "folder" + folder};
           }},
      signals, listener);
  EXPECT_THAT(ends(result), ElementsAre("exit status 6"));
  EXPECT_EQ(result.ranks[0].rank, -1);
  EXPECT_THAT(listener.lines, ElementsAre("-1! folder"));
}

TEST(Attempt, RanksThatNeverBeginAreNotWaitedFor) {
  Listener listener;
  SignalQueue signals;
  adopt_orphans();
  const AttemptResult result = run_attempt(
      {.num_ranks = 2,
       .has_keepers = true,
       .words =
           [](const std::string&) {
             return Words{"/bin/sh", "-c", "echo no slots >&2; exit 1"};
           }},
      signals, listener);
  EXPECT_FALSE(result.ranks[0].started);
  EXPECT_EQ(result.launcher.exit_status, 1);
  EXPECT_THAT(result.launcher_lines, ElementsAre("no slots"));
}

TEST(SignalQueue, WakesAPause) {
  SignalQueue signals;
  EXPECT_EQ(signals.wait_for_end(milliseconds(1)), 0);
  ::kill(::getpid(), SIGUSR1);
  ::kill(::getpid(), SIGHUP);
  EXPECT_EQ(signals.wait_for_end(milliseconds(60000)), SIGHUP);
}

TEST(RankFolder, IsTheUsersAloneAndGoesWithItsObject) {
  std::string path;
  {
    RankFolder folder(2);
    path = folder.path();
    struct stat facts {};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777u, 0700u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace canzona::attempt_test
