#include "canzona/base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace canzona::utf8_test {
namespace {

std::string encode(char32_t code) {
  if (code < 0x80) return {char(code)};
  if (code < 0x800) return {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
  if (code < 0x10000) {
    return {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 0x3F)),
            char(0x80 | (code & 0x3F))};
  }
  return {char(0xF0 | code >> 18), char(0x80 | (code >> 12 & 0x3F)),
          char(0x80 | (code >> 6 & 0x3F)), char(0x80 | (code & 0x3F))};
}

TEST(Utf8, ReadsEveryCodePointAndNoSurrogate) {
  for (char32_t code = 0; code < 0x110400; ++code) {
    const std::string text = encode(code);
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    const Utf8Char c = utf8_char(text, 0);
    ASSERT_EQ(c.valid, code <= 0x10FFFF && !is_surrogate) << size_t{code};
    ASSERT_EQ(c.length, c.valid ? text.size() : 1) << size_t{code};
    ASSERT_EQ(c.code, c.valid ? code : U'\0') << size_t{code};
  }
}

TEST(Utf8, RefusesBrokenSequences) {
  for (const char* text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x80\x80",
        "\xE0\x9F\xBF", "\xE2\x82", "\xE2(\xAC", "\xF0\x80\x80\x80",
        "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF5\x80\x80\x80", "\xFE",
        "\xFF"}) {
    const Utf8Char c = utf8_char(text, 0);
    EXPECT_FALSE(c.valid);
    EXPECT_EQ(c.length, 1u);
  }
}

TEST(Utf8, StartsWhereItIsTold) {
  const Utf8Char c = utf8_char("a\xC3\xA9", 1);
  EXPECT_TRUE(c.valid);
  EXPECT_EQ(size_t{c.code}, 0xE9u);
}

}  // namespace
}  // namespace canzona::utf8_test
