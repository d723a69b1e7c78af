#include "canzona/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/base/units.h"

namespace canzona::check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Error, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Check, PassesInSilence) {
  CANZONA_CHECK(1 + 1 == 2, "arithmetic");
  CANZONA_CHECK(true);
  CANZONA_CHECK_EQ(size_t{3}, 3, "cuts");
  CANZONA_CHECK_EQ(std::string("a"), "a");
}

TEST(Check, NamesTheConditionThePlaceAndTheDetail) {
  const std::string message = message_of<InternalError>(
      [] { CANZONA_CHECK(1 > 2, "home of tensor ", 7); });
  EXPECT_THAT(message, AllOf(HasSubstr("check_test.cc:"), HasSubstr("1 > 2"),
                             HasSubstr("home of tensor 7")));
}

TEST(Check, PrintsBothSides) {
  const std::string message = message_of<InternalError>([] {
    const Bytes expected{5};
    CANZONA_CHECK_EQ(Bytes{4}, expected, "bucket ", 3);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("4 bytes vs 5 bytes"),
                             HasSubstr("== expected"), HasSubstr("bucket 3")));
}

TEST(Check, EvaluatesItsArgumentsOnce) {
  int calls = 0;
  CANZONA_CHECK_EQ(++calls, 1, "calls");
  EXPECT_EQ(calls, 1);
}

TEST(Check, EqualityOfIntegersIsThatOfTheirValues) {
  EXPECT_TRUE(check_equal(uint64_t{3}, 3));
  EXPECT_FALSE(check_equal(~uint64_t{0}, -1));
  EXPECT_FALSE(check_equal(uint32_t{0xFFFFFFFF}, -1));
  EXPECT_TRUE(check_equal(true, true));
}

TEST(Error, KindsAreToldApartByTheirType) {
  EXPECT_THROW(throw UsageError("x"), Error);
  EXPECT_THROW(throw InternalError("x"), Error);
  EXPECT_THROW(throw PeerLost("x"), Error);
  static_assert(!std::is_base_of_v<UsageError, InternalError>);
  static_assert(!std::is_base_of_v<InternalError, PeerLost>);
}

}  // namespace
}  // namespace canzona::check_test
