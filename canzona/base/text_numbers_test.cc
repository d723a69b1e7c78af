#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::text_numbers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(ParseInteger, ReadsWholeDecimalIntegers) {
  EXPECT_EQ(parse_integer("42", 0, 100, "dp"), 42);
  EXPECT_EQ(parse_integer("-7", -10, 0, "dp"), -7);
  EXPECT_EQ(parse_integer("9223372036854775807", 0, kMax, "dp"), kMax);
  EXPECT_EQ(parse_integer("-9223372036854775808", kMin, 0, "dp"), kMin);
}

TEST(ParseInteger, RefusesAllElse) {
  for (const char* text : {"", " ", "x", "4x", " 4", "4 ", "+4", "0x4", "4.0",
                           "1e3", "101", "-1", "9223372036854775808"}) {
    EXPECT_THROW(parse_integer(text, 0, 100, "dp"), UsageError) << text;
  }
}

TEST(ParseInteger, SaysWhatWasExpectedAndWhatCame) {
  try {
    parse_integer("zero", 1, 8, "tp");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "tp is 'zero', expected an integer from 1 to 8");
  }
}

TEST(ParseNumber, ReadsFiniteNumbersInItsRange) {
  EXPECT_EQ(parse_number("0.25", 0, 1, "alpha"), 0.25);
  EXPECT_EQ(parse_number("1e-3", 0, 1, "alpha"), 1e-3);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "1.5", "-0.1",
                           "0.5x", " 0.5", "0,5"}) {
    EXPECT_THROW(parse_number(text, 0, 1, "alpha"), UsageError) << text;
  }
  EXPECT_THROW(
      parse_number("inf", 0, std::numeric_limits<double>::infinity(), "x"),
      UsageError);
}

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("123", "cap"), 123);
  EXPECT_EQ(parse_bytes("0", "cap"), 0);
  EXPECT_EQ(parse_bytes("2GB", "cap"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("1600MiB", "cap"), int64_t{1600} << 20);
  EXPECT_EQ(parse_bytes("64GiB", "cap"), int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("1.5 GiB", "cap"), 1'610'612'736);
  EXPECT_EQ(parse_bytes("3KB", "cap"), 3000);
  EXPECT_EQ(parse_bytes("3KiB", "cap"), 3072);
  EXPECT_EQ(parse_bytes("7TB", "cap"), 7'000'000'000'000);
  EXPECT_EQ(parse_bytes("7TiB", "cap"), int64_t{7} << 40);
  EXPECT_EQ(parse_bytes("0.5KB", "cap"), 500);
  EXPECT_EQ(parse_bytes("12 B", "cap"), 12);
  EXPECT_EQ(parse_bytes("9223372036854775807", "cap"), kMax);
}

TEST(ParseBytes, RefusesAllElse) {
  for (const char* text :
       {"", "GB", "-1", "-1GB", "1gb", "1G", "1XB", "1GB/s", "1GB x", "nan",
        "infGB", "1e999", "9223372036854775808", "8388608TiB", "1e30GB"}) {
    EXPECT_THROW(parse_bytes(text, "cap"), UsageError) << text;
  }
}

TEST(ParseBandwidth, TellsBitsFromBytes) {
  EXPECT_EQ(parse_bandwidth("400GB/s", "link"), 400e9);
  EXPECT_EQ(parse_bandwidth("400Gb/s", "link"), 50e9);
  EXPECT_EQ(parse_bandwidth("400Gbit/s", "link"), 50e9);
  EXPECT_EQ(parse_bandwidth("1.5 GiB/s", "link"), 1610612736.0);
  for (const char* text : {"", "400", "400GB", "0GB/s", "-1GB/s", "1e300TB/s",
                           "1e999GB/s", "infGB/s", "fast"}) {
    EXPECT_THROW(parse_bandwidth(text, "link"), UsageError) << text;
  }
}

TEST(ParseDuration, ReadsSecondsAndTheirParts) {
  EXPECT_EQ(parse_duration("20us", "latency"), 20e-6);
  EXPECT_EQ(parse_duration("20 µs", "latency"), 20e-6);
  EXPECT_EQ(parse_duration("1.5ms", "latency"), 1.5e-3);
  EXPECT_EQ(parse_duration("2s", "latency"), 2);
  EXPECT_EQ(parse_duration("3ns", "latency"), 3e-9);
  EXPECT_EQ(parse_duration("0s", "latency"), 0);
  EXPECT_EQ(parse_duration("10min", "latency"), 600);
  EXPECT_EQ(parse_duration("1.5h", "latency"), 5400);
  for (const char* text :
       {"", "20", "-1s", "1d", "us", "nans", "1e300s", "1e9h"}) {
    EXPECT_THROW(parse_duration(text, "latency"), UsageError) << text;
  }
}

TEST(ParseBytes, NamesTheOptionAndAnExample) {
  try {
    parse_bytes("64 gigs", "--memory");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("--memory is '64 gigs'"), HasSubstr("1.5GiB")));
  }
}

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(1'610'612'736), "1.50 GiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(human_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(human_bytes(kMax), "8.00 EiB");
  EXPECT_EQ(human_bytes(kMin), "-8.00 EiB");
}

TEST(Human, Count) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1.00K");
  EXPECT_EQ(human_count(12'345'678), "12.3M");
  EXPECT_EQ(human_count(999'999), "1.00M");
  EXPECT_EQ(human_count(32.8e9), "32.8B");
  EXPECT_EQ(human_count(12.5), "12.5");
  EXPECT_EQ(human_count(1e18), "1000000T");
  EXPECT_EQ(human_count(-1500), "-1.50K");
}

TEST(Human, Seconds) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(2e-5), "20.0 us");
  EXPECT_EQ(human_seconds(3e-9), "3.00 ns");
  EXPECT_EQ(human_seconds(0.9999), "1.00 s");
  EXPECT_EQ(human_seconds(1234), "1234 s");
  EXPECT_EQ(human_seconds(-0.5), "-500 ms");
}

TEST(Human, EndsOnEveryDouble) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double number : {infinity, -infinity, nan, 1e308, 5e-324}) {
    EXPECT_FALSE(human_count(number).empty());
    EXPECT_FALSE(human_seconds(number).empty());
  }
}

}  // namespace
}  // namespace canzona::text_numbers_test
