#include "canzona/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"

// Intercepts every fsync of this program to count how often folders were
// synchronized.
static int synced_folders = 0;
extern "C" int fsync(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) ++synced_folders;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace canzona::files_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Files : public FolderTest {
 protected:
  size_t num_files() const {
    return static_cast<size_t>(std::distance(
        fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  template <class Action>
  static std::string message_of(Action action) {
    try {
      action();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

TEST_F(Files, ReadsWhatWasWritten) {
  const std::string bytes("a\0b\n\xFF", 5);
  write_file(path("x"), bytes);
  EXPECT_EQ(read_file(path("x"), 5, "test"), bytes);
  EXPECT_EQ(file_size(path("x"), "test"), 5);
  write_file(path("x"), "");
  EXPECT_EQ(read_file(path("x"), 0, "test"), "");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(Files, RefusesAFileAboveTheLimit) {
  write_file(path("x"), "123456");
  EXPECT_THAT(message_of([&] { read_file(path("x"), 5, "the model"); }),
              AllOf(HasSubstr("the model"), HasSubstr(path("x")),
                    HasSubstr("6 bytes"), HasSubstr("limit is 5")));
}

TEST_F(Files, NamesWhatIsMissing) {
  EXPECT_THAT(message_of([&] { read_file(path("no"), 5, "the model"); }),
              AllOf(HasSubstr("the model"), HasSubstr(path("no")),
                    HasSubstr("No such file")));
  EXPECT_THROW(file_size(path("no"), "x"), UsageError);
  EXPECT_THROW(read_file_range(path("no"), 0, 1, "x"), UsageError);
  EXPECT_THROW(read_file("", 1, "x"), UsageError);
}

TEST_F(Files, ReadsRegularFilesOnly) {
  EXPECT_THAT(message_of([&] { read_file(folder_.path(), 5, "x"); }),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { read_file(path("pipe"), 5, "x"); }),
              HasSubstr("not a regular file"));
  EXPECT_THROW(read_file("/dev/zero", 5, "x"), UsageError);
}

TEST_F(Files, RefusesANameWithANul) {
  write_file(path("x"), "1");
  const std::string name = path("x") + std::string("\0y", 2);
  EXPECT_THROW(read_file(name, 5, "x"), UsageError);
  EXPECT_THROW(write_file(name, "2"), UsageError);
  EXPECT_EQ(read_file(path("x"), 5, "x"), "1");
}

TEST_F(Files, ReadsARange) {
  write_file(path("x"), "0123456789");
  EXPECT_EQ(read_file_range(path("x"), 2, 3, "x"), "234");
  EXPECT_EQ(read_file_range(path("x"), 8, 5, "x"), "89");
  EXPECT_EQ(read_file_range(path("x"), 10, 5, "x"), "");
  EXPECT_EQ(read_file_range(path("x"), 99, 5, "x"), "");
  EXPECT_EQ(read_file_range(path("x"), 0, int64_t{1} << 60, "x"), "0123456789");
  EXPECT_THROW(read_file_range(path("x"), -1, 5, "x"), InternalError);
  EXPECT_THROW(read_file_range(path("x"), 0, -1, "x"), InternalError);
}

TEST_F(Files, WriteNeedsAFolder) {
  EXPECT_THAT(message_of([&] { write_file(path("no/x"), "1"); }),
              AllOf(HasSubstr("cannot write"), HasSubstr(path("no/x"))));
  EXPECT_THAT(message_of([&] { write_file(folder_.path(), "1"); }),
              HasSubstr("it is a folder"));
  EXPECT_EQ(num_files(), 0u);
}

// While it lives, files of this process end after `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_limit_{};
};

TEST_F(Files, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write_file(path("x"), "old");
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT([&] { write_file(path("x"), "more than ten"); },
                testing::ThrowsMessage<StorageError>(
                    AllOf(HasSubstr("cannot write"), HasSubstr(path("x")))));
    EXPECT_THROW(write_file(path("y"), "more than ten"), StorageError);
  }
  EXPECT_EQ(read_file(path("x"), 10, "x"), "old");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(Files, AFullDeviceIsNotTheCallersMistake) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(write_file("/dev/full", "x"), StorageError);
}

// In a container the process has the same pid as the killed one.
TEST_F(Files, LeftoversOfAProcessOfTheSameNumberDoNotBlock) {
  for (int i = 0; i < 300; ++i)
    folder_.write(cat("x.", ::getpid(), ".", i, ".tmp"), "left behind");
  write_file(path("x"), "new");
  EXPECT_EQ(read_file(path("x"), 10, "x"), "new");
}

TEST_F(Files, TheFolderIsSynchronizedAfterTheRename) {
  const int before = synced_folders;
  write_file(path("x"), "new");
  EXPECT_EQ(synced_folders, before + 1);
}

TEST_F(Files, APathCanBeCheckedLongBeforeItIsWritten) {
  EXPECT_THAT(message_of([&] { check_writable(path("no/x")); }),
              AllOf(HasSubstr("cannot write"), HasSubstr(path("no/x"))));
  EXPECT_THAT(message_of([&] { check_writable(folder_.path()); }),
              HasSubstr("it is a folder"));
  write_file(path("x"), "old");
  check_writable(path("x"));
  check_writable(path("y"));
  check_writable("/dev/null");
  EXPECT_EQ(read_file(path("x"), 10, "x"), "old");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(Files, AReaderNamesBothSizesOfAFileThatWasCutShort) {
  const FileReader file(folder_.write("x", "0123456789"), "the tokens");
  EXPECT_EQ(file.size(), 10);
  std::string to(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(to)));
  EXPECT_EQ(to, "3456");
  fs::resize_file(path("x"), 5);
  file.read(0, std::as_writable_bytes(std::span(to)));
  EXPECT_EQ(to, "0123");
  EXPECT_THAT([&] { file.read(3, std::as_writable_bytes(std::span(to))); },
              testing::ThrowsMessage<DataLost>(
                  AllOf(HasSubstr(path("x")), HasSubstr("expected 10 bytes"),
                        HasSubstr("found 5"))));
  EXPECT_THROW(FileReader(path("no"), "the tokens"), UsageError);
}

TEST_F(Files, PiecesBecomeAFileWhenTheyAreFinished) {
  write_file(path("x"), "old");
  FileWriter file(path("x"));
  file.write("one ");
  file.write("");
  file.write("two");
  EXPECT_EQ(read_file(path("x"), 10, "x"), "old");
  file.finish();
  EXPECT_EQ(read_file(path("x"), 10, "x"), "one two");
  EXPECT_EQ(num_files(), 1u);
  EXPECT_THROW(file.write("three"), InternalError);
  EXPECT_THROW(file.finish(), InternalError);
}

TEST_F(Files, PiecesThatAreNotFinishedLeaveNothing) {
  {
    FileWriter file(path("x"));
    file.write("one");
    EXPECT_EQ(num_files(), 1u);
  }
  EXPECT_EQ(num_files(), 0u);
  EXPECT_THROW(FileWriter{"/dev/null"}, UsageError);
  EXPECT_THROW(FileWriter{path("no/x")}, UsageError);
}

TEST_F(Files, ADeviceStaysADevice) {
  write_file("/dev/null", "1");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Files, ALinkStaysALink) {
  write_file(path("x"), "old");
  fs::create_symlink("x", path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("x"), 10, "x"), "new");
}

TEST_F(Files, RightsAreKeptOrUsual) {
  write_file(path("x"), "1");
  fs::permissions(path("x"), fs::perms(0640));
  write_file(path("x"), "2");
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms(0640));

  std::ofstream(path("plain")) << 1;
  write_file(path("new"), "1");
  EXPECT_EQ(fs::status(path("new")).permissions(),
            fs::status(path("plain")).permissions());
}

// A reader that has the old file open goes on reading the old bytes.
TEST_F(Files, AReaderSeesTheOldFileOrTheNew) {
  write_file(path("x"), "old bytes");
  std::ifstream reader(path("x"));
  write_file(path("x"), "new");
  std::string seen;
  std::getline(reader, seen);
  EXPECT_EQ(seen, "old bytes");
  EXPECT_EQ(read_file(path("x"), 10, "x"), "new");
}

}  // namespace
}  // namespace canzona::files_test
