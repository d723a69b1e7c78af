#include "canzona/launch/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "canzona/base/error.h"
#include "canzona/launch/rank_folder.h"

namespace canzona::child_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Lines = std::vector<std::string>;

Lines lines_of(Descriptor file) {
  Lines lines;
  LineReader reader(std::move(file));
  while (reader.descriptor() >= 0) {
    pollfd wait{reader.descriptor(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    reader.read([&](std::string_view line) { lines.emplace_back(line); });
  }
  return lines;
}

Child shell(const std::string& script) {
  return Child({.words = {"/bin/sh", "-c", script, "sh", "a  b", "$c"}});
}

TEST(Child, GetsItsWordsAsTheyAreAndKeepsStreamsApart) {
  Child child = shell("echo \"$1\"; echo \"$2\" >&2; cat; exit 3");
  EXPECT_THAT(lines_of(child.output()), ElementsAre("a  b"));
  EXPECT_THAT(lines_of(child.errors()), ElementsAre("$c"));
  EXPECT_EQ(child.wait().exit_status, 3);
}

TEST(Child, HasTheVariablesThatItIsGiven) {
  ::setenv("CANZONA_TEST_ONE", "1", 1);
  Child child(
      {.words = {"/bin/sh", "-c", "echo $CANZONA_TEST_ONE $CANZONA_TEST_TWO"},
       .variables = {{"CANZONA_TEST_TWO", "2"}, {"CANZONA_TEST_ONE", "one"}}});
  EXPECT_THAT(lines_of(child.output()), ElementsAre("one 2"));
}

TEST(Child, IsRefusedWhereThereIsNoProgram) {
  EXPECT_THAT([] { Child child({.words = {"/nowhere/mpirun"}}); },
              testing::ThrowsMessage<UsageError>(
                  HasSubstr("'/nowhere/mpirun': No such file or directory")));
}

TEST(Child, StartsWithNoSignalIgnoredOrBlocked) {
  ::signal(SIGPIPE, SIG_IGN);
  // No fork here, because a shell blocks all signals while it forks.
  Child child = shell("exec grep -E 'SigBlk|SigIgn' /proc/self/status");
  // Signals 32 and 33 are the C library's own and cannot be set.
  constexpr uint64_t kOfTheLibrary = uint64_t{3} << 31;
  for (const std::string& line : lines_of(child.output())) {
    const uint64_t signals =
        std::stoull(line.substr(line.find(':') + 1), nullptr, 16);
    EXPECT_EQ(signals & ~kOfTheLibrary, 0U) << line;
  }
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(Child, IsKilledWithItsObject) {
  pid_t pid = 0;
  {
    Child child = shell("sleep 1000");
    pid = child.pid();
    EXPECT_FALSE(child.poll());
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

// The child of a killed parent ends, too: PR_SET_PDEATHSIG.
TEST(Child, R5DoesNotOutliveItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Child child({.words = {"/bin/sleep", "1000"}});
    const pid_t pid = child.pid();
    (void)!::write(ends[1], &pid, sizeof(pid));
    ::raise(SIGKILL);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), sizeof(child));
  ::waitpid(parent, nullptr, 0);
  for (int i = 0; i < 2000 && ::kill(child, 0) == 0; ++i) {
    std::string state;
    // A zombie of init counts as gone.
    const std::string path = "/proc/" + std::to_string(child) + "/stat";
    if (FILE* file = ::fopen(path.c_str(), "r")) {
      char text[256] = {};
      (void)!::fread(text, 1, sizeof(text) - 1, file);
      ::fclose(file);
      if (std::string(text).find(") Z") != std::string::npos) return;
    }
    ::usleep(5000);
  }
  EXPECT_EQ(::kill(child, 0), -1);
}

TEST(ProcessEnd, TellsSignalsByName) {
  Child killed = shell("kill -KILL $$");
  EXPECT_EQ(to_string(killed.wait()), "SIGKILL");
  EXPECT_THAT(to_string(shell("kill -SEGV $$").wait()), HasSubstr("SIGSEGV"));
  EXPECT_EQ(to_string(shell("exit 143").wait()), "exit status 143");
  EXPECT_EQ(to_string(ProcessEnd{}), "an unknown exit status");
}

TEST(LineReader, GivesTheLastLineWithoutItsEnd) {
  EXPECT_THAT(lines_of(shell("printf 'a\\n\\rb\\r\\nc'").output()),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(lines_of(shell(":").output()), IsEmpty());
}

TEST(LineReader, HandsOutEndlessLinesInPieces) {
  const Lines lines =
      lines_of(shell("head -c 200000 /dev/zero | tr '\\0' x").output());
  size_t all = 0;
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 70000u);
    all += line.size();
  }
  EXPECT_EQ(all, 200000u);
}

TEST(FindProgram, LooksThroughFolders) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(find_program("no-such-program", "/bin:/usr/bin"), "");
}

TEST(RankEvent, IsReadOrIgnored) {
  const auto start = parse_rank_event("start 2 4711");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->rank, 2);
  EXPECT_EQ(start->pid, 4711);
  const auto end = parse_rank_event("end 1 9");
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->is_end);
  EXPECT_EQ(end->end.signal, SIGKILL);
  for (const char* line : {"", "end", "end -1 0", "begin 1 2", "end x 9"})
    EXPECT_FALSE(parse_rank_event(line)) << line;
}

}  // namespace
}  // namespace canzona::child_test
