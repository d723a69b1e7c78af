#include "canzona/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "canzona/base/error.h"

namespace canzona {
namespace {

namespace fs = std::filesystem;

TEST(Paths, FoldersFilesAndNothingAreToldApart) {
  const fs::path folder = fs::path(testing::TempDir()) / "paths_test";
  fs::remove_all(folder);
  EXPECT_FALSE(is_there(folder));
  EXPECT_FALSE(is_folder(folder));
  fs::create_directory(folder);
  std::ofstream(folder / "file") << "text";
  EXPECT_TRUE(is_there(folder));
  EXPECT_TRUE(is_folder(folder));
  EXPECT_TRUE(is_there(folder / "file"));
  EXPECT_FALSE(is_folder(folder / "file"));
  EXPECT_FALSE(is_there(folder / "file" / "below"));
  fs::remove_all(folder);
}

TEST(Paths, WhatTheSystemDoesNotTellIsNoAbsence) {
  EXPECT_THAT([] { is_there(std::string(300, 'x')); },
              testing::ThrowsMessage<UsageError>(
                  testing::AllOf(testing::StartsWith("cannot access 'xxx"),
                                 testing::EndsWith(": File name too long"))));
  const fs::path link = fs::path(testing::TempDir()) / "paths_test_link";
  fs::remove(link);
  fs::create_symlink(link, link);
  EXPECT_THAT(
      [&] { is_folder(link); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("symbolic links")));
  fs::remove(link);
}

}  // namespace
}  // namespace canzona
