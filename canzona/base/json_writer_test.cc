#include "canzona/base/json_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"

namespace canzona::json_writer_test {
namespace {

TEST(JsonWriter, WritesMembersInOrder) {
  JsonWriter out;
  out.begin_object()
      .field("mesh", "dp=2,tp=4")
      .field("ranks", 8)
      .field("balanced", true)
      .member("none")
      .null()
      .member("owners")
      .values(std::vector<int>{3, 1, 2})
      .member("empty")
      .begin_object()
      .end_object()
      .end_object();
  EXPECT_EQ(out.take(),
            R"({"mesh":"dp=2,tp=4","ranks":8,"balanced":true,"none":null,)"
            R"("owners":[3,1,2],"empty":{}})");
}

TEST(JsonWriter, IndentsObjectsAndKeepsPlainArraysOnALine) {
  JsonWriter out(2);
  out.begin_object().member("a").values(std::vector<int>{1, 2});
  out.member("b").begin_array();
  out.begin_object().field("c", 1).end_object();
  out.begin_object().end_object();
  out.begin_array().end_array();
  out.end_array().field("d", std::string("x")).end_object();
  EXPECT_EQ(out.text(),
            "{\n"
            "  \"a\": [1, 2],\n"
            "  \"b\": [\n"
            "    {\n"
            "      \"c\": 1\n"
            "    },\n"
            "    {},\n"
            "    []\n"
            "  ],\n"
            "  \"d\": \"x\"\n"
            "}");
}

std::string written(double number) { return JsonWriter().value(number).take(); }

TEST(JsonWriter, WritesTheShortestNumberThatReadsBack) {
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(1.0), "1");
  EXPECT_EQ(written(-2.5), "-2.5");
  EXPECT_EQ(written(1e300), "1e+300");
  EXPECT_EQ(written(5e-324), "5e-324");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(JsonWriter, EveryFiniteDoubleReadsBackEqual) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const Json back = parse_json(written(number), {});
    ASSERT_EQ(back.get<double>(), number) << written(number);
  }
}

TEST(JsonWriter, WritesAllIntegers) {
  JsonWriter out;
  out.begin_array()
      .value(std::numeric_limits<int64_t>::min())
      .value(std::numeric_limits<uint64_t>::max())
      .value(int8_t{-1})
      .value(uint16_t{65535})
      .value(size_t{0})
      .end_array();
  EXPECT_EQ(out.text(),
            "[-9223372036854775808,18446744073709551615,-1,65535,0]");
}

std::string written(std::string_view text) {
  return JsonWriter().value(text).take();
}

TEST(JsonWriter, EscapesForJsonAndForHtml) {
  EXPECT_EQ(written("a\"b\\c\n\t"), R"("a\"b\\c\n\t")");
  EXPECT_EQ(written("</script>&"), R"("\u003c/script\u003e\u0026")");
  EXPECT_EQ(written("\x01\x1b\x7f"), R"("\u0001\u001b\u007f")");
  EXPECT_EQ(written("\xE2\x80\xA8\xE2\x80\xA9"), R"("\u2028\u2029")");
  EXPECT_EQ(written("caf\xC3\xA9 \xF0\x9F\x98\x80"),
            "\"caf\xC3\xA9 \xF0\x9F\x98\x80\"");
  EXPECT_EQ(written(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonWriter, ReplacesBrokenUtf8) {
  EXPECT_EQ(written("a\xFF"
                    "b\xC3"),
            "\"a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\"");
}

TEST(JsonWriter, AnyBytesGiveJsonThatReadsBack) {
  std::mt19937 random(5);
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes;
    for (size_t left = random() % 20; left > 0; --left) {
      bytes += static_cast<char>(random());
    }
    const std::string text = written(bytes);
    ASSERT_EQ(text.find('<'), std::string::npos);
    const auto back = parse_json(text, {}).get<std::string>();
    if (back.find("\xEF\xBF\xBD") == std::string::npos) {
      ASSERT_EQ(back, bytes);
    }
  }
}

TEST(JsonWriter, MemberNamesAreEscapedToo) {
  JsonWriter out;
  out.begin_object().field("<\"", 1).end_object();
  EXPECT_EQ(out.text(), R"({"\u003c\"":1})");
}

TEST(JsonWriter, RefusesWhatWouldNotBeJson) {
  EXPECT_THROW(JsonWriter().begin_object().value(1), InternalError);
  EXPECT_THROW(JsonWriter().begin_object().end_array(), InternalError);
  EXPECT_THROW(JsonWriter().begin_array().member("a"), InternalError);
  EXPECT_THROW(JsonWriter().begin_object().member("a").member("b"),
               InternalError);
  EXPECT_THROW(JsonWriter().begin_object().member("a").end_object(),
               InternalError);
  EXPECT_THROW(JsonWriter().end_object(), InternalError);
  EXPECT_THROW(JsonWriter().value(1).value(2), InternalError);
}

TEST(JsonWriter, VectorOfBoolsAndStrings) {
  JsonWriter out;
  out.begin_array()
      .values(std::vector<bool>{true, false})
      .values(std::vector<std::string>{"a"})
      .values(std::vector<double>{})
      .end_array();
  EXPECT_EQ(out.text(), R"([[true,false],["a"],[]])");
}

}  // namespace
}  // namespace canzona::json_writer_test
