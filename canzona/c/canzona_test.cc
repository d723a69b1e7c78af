// The C interface through its library, as any caller sees it.
#include "canzona/c/canzona.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace canzona::canzona_test {

using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;

TEST(CInterface, TellsItsVersion) {
  EXPECT_EQ(canzona_abi(), CANZONA_ABI);
  EXPECT_STREQ(canzona_version(), CANZONA_TEST_VERSION);
}

TEST(CInterface, ListsRulesAsJson) {
  ASSERT_THAT(canzona_rules(), NotNull());
  const std::string text = canzona_rules();
  for (const char* rule : {"muon", "soap", "shampoo", "adamw"})
    EXPECT_THAT(text, HasSubstr('"' + std::string(rule) + '"'));
}

TEST(CInterface, DescribesDevices) {
  ASSERT_THAT(canzona_describe("cpu"), NotNull());
  EXPECT_THAT(canzona_describe("cpu"), HasSubstr("bf16 by"));
}

TEST(CInterface, RefusesUnknownDevicesByName) {
  EXPECT_THAT(canzona_describe("tpu"), IsNull());
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  EXPECT_THAT(canzona_error(), HasSubstr("'tpu': expected cpu or cuda:N"));
  EXPECT_THAT(canzona_describe("cuda:x"), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("the GPU's number"));
  EXPECT_THAT(canzona_describe(nullptr), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("canzona_describe: device is NULL"));
}

TEST(CInterface, KeepsErrorsByThread) {
  ASSERT_THAT(canzona_describe("tpu"), IsNull());
  std::string seen = "unset";
  int kind = -1;
  std::thread([&] {
    seen = canzona_error();
    kind = canzona_error_kind();
    canzona_describe("npu");
  }).join();
  EXPECT_EQ(seen, "");
  EXPECT_EQ(kind, CANZONA_NO_ERROR);
  EXPECT_THAT(canzona_error(), HasSubstr("tpu"));
}

}  // namespace canzona::canzona_test
