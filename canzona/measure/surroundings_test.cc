#include "canzona/measure/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "canzona/base/test_folder.h"

namespace canzona::measure::surroundings_test {
namespace {

using testing::HasSubstr;

TEST(Disk, IsMeasuredAndLeftAsItWas) {
  const TestFolder folder;
  const DiskInfo disk = measure_disk(folder.path(), 1 << 20);
  EXPECT_EQ(disk.problem, "");
  EXPECT_GT(disk.free_bytes, 0);
  EXPECT_GT(disk.write_bytes_per_second, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Disk, ThatCannotBeWrittenSaysWhy) {
  const DiskInfo none = measure_disk("/no/such/folder");
  EXPECT_THAT(none.problem, HasSubstr("No such file or directory"));
  const TestFolder folder;
  const DiskInfo full = measure_disk(folder.path(), int64_t{1} << 60);
  EXPECT_THAT(full.problem, HasSubstr("are free"));
}

}  // namespace
}  // namespace canzona::measure::surroundings_test
