#include "canzona/data/unicode.h"

#include <gtest/gtest.h>

namespace canzona::data::text_stream_test {
namespace {

TEST(TextStream, GivesWholeCharactersByteByByte) {
  const std::string text = "a\u00E9\u6F22\U0001F600z\n\t";
  TextStream stream;
  std::string shown;
  for (const char byte : text) {
    const std::string part = stream.add({&byte, 1});
    EXPECT_TRUE(part.empty() || part.size() != 1 ||
                static_cast<unsigned char>(part[0]) < 0x80);
    shown += part;
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, WaitsOnlyForWhatMayStillBecomeACharacter) {
  TextStream stream;
  EXPECT_EQ(stream.add("\xE2\x82"), "");
  EXPECT_EQ(stream.add("\xAC!"), "\u20AC!");
  EXPECT_EQ(stream.add("\xE2("), "\uFFFD(");
  EXPECT_EQ(stream.add("\xFF\xC0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream.add("x\xF0\x9F"), "x");
  EXPECT_EQ(stream.finish(), "\uFFFD\uFFFD");
}

TEST(TextStream, ControlCharactersReachNoTerminal) {
  TextStream stream;
  EXPECT_EQ(stream.add("\x1B[2J\r\x7F\u009B a\n\tb"),
            "\uFFFD[2J\uFFFD\uFFFD\uFFFD a\n\tb");
}

}  // namespace
}  // namespace canzona::data::text_stream_test
