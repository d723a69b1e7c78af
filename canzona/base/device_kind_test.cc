#include "canzona/base/device_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DeviceKinds, AreFoundByName) {
  EXPECT_THAT(device_names(), ElementsAre("cpu", "cuda"));
  for (const std::string& name : device_names())
    EXPECT_EQ(device_kind(name).name, name);
}

TEST(DeviceKinds, OnlyTheHostSharesMemoryWithThisProcess) {
  EXPECT_FALSE(device_kind("cpu").has_own_memory);
  EXPECT_TRUE(device_kind("cuda").has_own_memory);
  EXPECT_FALSE(device_kind("cpu").has_fp16);
}

TEST(DeviceKinds, AnUnknownOneIsRefusedWithTheNearestName) {
  try {
    device_kind("cudo");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("device 'cudo': expected cpu or cuda"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'cuda'"));
  }
  EXPECT_THROW(device_kind(""), UsageError);
}

}  // namespace
}  // namespace canzona
