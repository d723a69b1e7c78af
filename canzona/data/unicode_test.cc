#include "canzona/data/unicode.h"

#include <gtest/gtest.h>

namespace canzona::data::unicode_test {
namespace {

TEST(UnicodeClass, LettersNumbersAndSpaces) {
  for (const char32_t code : {U'a', U'Z', U'\u00E9', U'\u00AA', U'\u0416',
                              U'\u6F22', U'\uD55C', U'\U0001E900'})
    EXPECT_EQ(unicode_class(code), UnicodeClass::kLetter) << uint32_t{code};
  for (const char32_t code :
       {U'0', U'\u00BD', U'\u0663', U'\u2167', U'\U0001D7D8'})
    EXPECT_EQ(unicode_class(code), UnicodeClass::kNumber) << uint32_t{code};
  for (const char32_t code : {U' ', U'\t', U'\n', U'\v', U'\f', U'\r',
                              U'\u0085', U'\u00A0', U'\u2028', U'\u3000'})
    EXPECT_EQ(unicode_class(code), UnicodeClass::kSpace) << uint32_t{code};
  for (const char32_t code : {U'_', U'\u0301', U'\u200B', U'\u001C', U'\uFEFF',
                              U'\U0001F600', U'\U0010FFFF', U'\0'})
    EXPECT_EQ(unicode_class(code), UnicodeClass::kOther) << uint32_t{code};
}

// Counts of Unicode 16.0.
TEST(UnicodeClass, EveryLetterAndNumberCounts) {
  int letters = 0, numbers = 0, spaces = 0;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    letters += unicode_class(code) == UnicodeClass::kLetter;
    numbers += unicode_class(code) == UnicodeClass::kNumber;
    spaces += unicode_class(code) == UnicodeClass::kSpace;
  }
  EXPECT_EQ(letters, 141'028);
  EXPECT_EQ(numbers, 1'911);
  EXPECT_EQ(spaces, 25);
}

TEST(ToNfc, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("plain"), "plain");
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");  // never composed again
  EXPECT_EQ(to_nfc("e\u0302\u0323"), "\u1EC7");
  // A mark of the same class between them keeps two apart.
  EXPECT_EQ(to_nfc("a\u0315\u0300\u05AE\u0300b"), "\u00E0\u05AE\u0300\u0315b");
}

TEST(ToNfc, IsItsOwnNormalForm) {
  for (const std::string text : {"x\u0301\u0327", "\u0344", "\u0f73\u0f71"})
    EXPECT_EQ(to_nfc(to_nfc(text)), to_nfc(text));
}

TEST(ToNfc, LeavesBrokenUtf8AndComposesNothingAcrossIt) {
  EXPECT_EQ(to_nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(to_nfc("\xCC"), "\xCC");
  EXPECT_EQ(to_nfc("a\u0301\xE2\x82z"), "\u00E1\xE2\x82z");
}

TEST(AppendUtf8, WritesAllLengths) {
  std::string text;
  for (const char32_t code : {U'a', U'\u00E9', U'\u6F22', U'\U0001F600'})
    append_utf8(text, code);
  EXPECT_EQ(text, "a\u00E9\u6F22\U0001F600");
}

}  // namespace
}  // namespace canzona::data::unicode_test
