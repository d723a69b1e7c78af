#include "canzona/base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <type_traits>

#include "canzona/base/error.h"

namespace canzona::units_test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};

TEST(Units, AddSubtractMultiplyAndCompare) {
  Bytes total{10};
  total += Bytes{5};
  total -= Bytes{1};
  EXPECT_EQ(total, Bytes{14});
  EXPECT_EQ(Bytes{3} * 4, 4 * Bytes{3});
  EXPECT_EQ((Bytes{3} - Bytes{5}).value(), -2);
  EXPECT_LT(Flops{1}, Flops{2});
  EXPECT_EQ(Elements{}, Elements{0});
}

TEST(Units, DoNotMix) {
  static_assert(!Comparable<Bytes, Flops>);
  static_assert(!Addable<Bytes, Elements>);
  static_assert(!Comparable<Bytes, int64_t>);
  static_assert(!std::is_convertible_v<int64_t, Bytes>);
  static_assert(Comparable<Ticks, Ticks> && Addable<Ticks, Ticks>);
}

TEST(Units, PrintTheirName) {
  std::ostringstream out;
  out << Bytes{7} << ", " << Ticks{-1};
  EXPECT_EQ(out.str(), "7 bytes, -1 ticks");
}

TEST(Units, RefuseOverflow) {
  EXPECT_THROW(Bytes{kMax} + Bytes{1}, UsageError);
  EXPECT_THROW(Bytes{kMin} - Bytes{1}, UsageError);
  EXPECT_THROW(Bytes{0} - Bytes{kMin}, UsageError);
  EXPECT_THROW(Bytes{kMax / 2 + 1} * 2, UsageError);
  EXPECT_THROW(Bytes{kMin} * -1, UsageError);
  EXPECT_EQ((Bytes{-1} - Bytes{kMin}).value(), kMax);
  EXPECT_EQ((Bytes{kMax / 2} * 2).value(), kMax - 1);
}

TEST(Units, OverflowNamesWhatAndBothNumbers) {
  try {
    checked_mul(kMax, 3, "elements of 'w'");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "elements of 'w': 9223372036854775807 * 3 does not fit in a "
                 "64-bit integer");
  }
}

}  // namespace
}  // namespace canzona::units_test
