#include "canzona/base/files.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"

namespace canzona::file_lock_test {
namespace {

class FileLocks : public FolderTest {};

TEST_F(FileLocks, OneOwnerAtATimeAndNoFileAfterIt) {
  {
    const auto first = FileLock::take(path("lock"), "process 1");
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::take(path("lock"), "process 2"));
    EXPECT_EQ(FileLock::holder(path("lock")), "process 1");
  }
  EXPECT_FALSE(std::filesystem::exists(path("lock")));
  EXPECT_EQ(FileLock::holder(path("lock")), "");
  EXPECT_TRUE(FileLock::take(path("lock"), "process 2"));
}

TEST_F(FileLocks, AFileWithoutAnOwnerLocksNothing) {
  folder_.write("lock", "a process that is long gone, with many words");
  const auto lock = FileLock::take(path("lock"), "me");
  ASSERT_TRUE(lock);
  EXPECT_EQ(FileLock::holder(path("lock")), "me");
}

TEST_F(FileLocks, AKilledOwnerLocksNothing) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::take(path("lock"), "the child");
    (void)!::write(ready[1], lock ? "y" : "n", 1);
    while (true) ::pause();
  }
  char held = 0;
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(FileLock::take(path("lock"), "me"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(FileLock::holder(path("lock")), "the child");
  EXPECT_TRUE(FileLock::take(path("lock"), "me"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FileLocks, NeedsItsFolder) {
  EXPECT_THAT(
      [&] { FileLock::take(path("no/lock"), "me"); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr(path("no/lock"))));
}

}  // namespace
}  // namespace canzona::file_lock_test
