#include "canzona/base/text.h"

#include <gtest/gtest.h>

namespace canzona::enum_names_test {
namespace {

enum class Fruit { kApple, kPear, kUnnamed };
constexpr EnumNames<Fruit, 2> kFruits{
    {{Fruit::kApple, "apple"}, {Fruit::kPear, "pear"}}};

TEST(EnumNames, GoBothWays) {
  EXPECT_EQ(name_of(kFruits, Fruit::kPear), "pear");
  EXPECT_EQ(value_of(kFruits, "apple", "fruit"), Fruit::kApple);
  EXPECT_EQ(name_of(kFruits, Fruit::kUnnamed), "?");
}

TEST(EnumNames, UnknownNamesAreRefusedWithTheNearest) {
  try {
    value_of(kFruits, "paer", "fruit");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "fruit 'paer': expected apple|pear "
                 "(did you mean 'pear'?)");
  }
}

}  // namespace
}  // namespace canzona::enum_names_test
