#include "canzona/checkpoint/file_system.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"

namespace canzona::checkpoint::new_folder_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class NewFolders : public FolderTest {
 protected:
  bool exists(const std::string& name) const {
    return std::filesystem::exists(path(name));
  }
};

TEST_F(NewFolders, AppearWhenTheyAreComplete) {
  {
    NewFolder folder(path("out/"), "me");
    write_file(folder.path() + "/a", "text");
    EXPECT_FALSE(exists("out"));
    EXPECT_TRUE(exists("out.lock"));
    folder.commit();
  }
  EXPECT_EQ(bytes_of("out/a"), "text");
  EXPECT_FALSE(exists("out.canzona-part"));
  EXPECT_FALSE(exists("out.lock"));
}

TEST_F(NewFolders, LeaveNothingBehind) {
  {
    NewFolder folder(path("out"), "me");
    write_file(folder.path() + "/a", "text");
  }
  EXPECT_FALSE(exists("out"));
  EXPECT_FALSE(exists("out.canzona-part"));
}

TEST_F(NewFolders, TakeThePlaceOfAnEmptyOneAndOfWhatWasLeft) {
  std::filesystem::create_directory(path("out"));
  folder_.write("out.canzona-part/old", "of a process that was killed");
  NewFolder folder(path("out"), "me");
  write_file(folder.path() + "/a", "text");
  folder.commit();
  EXPECT_EQ(bytes_of("out/a"), "text");
  EXPECT_FALSE(exists("out/old"));
}

TEST_F(NewFolders, RefuseWhatIsThere) {
  folder_.write("full/a", "text");
  folder_.write("file", "text");
  std::filesystem::create_directory_symlink(path("nowhere"), path("link"));
  for (const char* name : {"full", "file", "link"})
    EXPECT_THAT([&] { NewFolder(path(name), "me"); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr(name), HasSubstr("already exists"))));
  EXPECT_EQ(bytes_of("full/a"), "text");
  for (const char* name : {".", "..", "full/..", "file/out", "file/a/out"})
    EXPECT_THROW(NewFolder(path(name), "me"), UsageError) << name;
  EXPECT_THROW(NewFolder("", "me"), UsageError);
}

TEST_F(NewFolders, MakeTheFoldersAboveThem) {
  folder_.write("a/kept", "text");
  {
    NewFolder folder(path("a/b/c/out"), "me");
    folder.commit();
  }
  EXPECT_TRUE(exists("a/b/c/out"));
  // They are removed again with what could not be written, unless they existed
  // before.
  { const NewFolder folder(path("a/d/e/out"), "me"); }
  EXPECT_FALSE(exists("a/d"));
  EXPECT_TRUE(exists("a/kept"));
  EXPECT_THROW(NewFolder(path("a/d/../kept/x/out"), "me"), UsageError);
  EXPECT_FALSE(exists("a/d"));
}

TEST_F(NewFolders, BelongToOneProcessAtATime) {
  NewFolder folder(path("out"), "the first one");
  EXPECT_THAT([&] { NewFolder(path("out"), "another"); },
              ThrowsMessage<UsageError>(
                  HasSubstr("is being written by the first one")));
  EXPECT_TRUE(exists("out.canzona-part"));
}

TEST_F(NewFolders, AskForRoom) {
  const NewFolder folder(path("out"), "me");
  EXPECT_NO_THROW(folder.require_space(0));
  EXPECT_THROW(folder.require_space(std::numeric_limits<int64_t>::max()),
               StorageError);
}

}  // namespace
}  // namespace canzona::checkpoint::new_folder_test
