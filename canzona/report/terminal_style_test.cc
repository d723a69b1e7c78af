#include "canzona/report/terminal.h"

#include <gtest/gtest.h>

namespace canzona::report::terminal_style_test {
namespace {

TEST(Ink, ColoursOnlyWhenAsked) {
  EXPECT_EQ(Ink(true)(Tone::kGood, "ok"), "\x1b[32mok\x1b[0m");
  EXPECT_EQ(Ink(false)(Tone::kGood, "ok"), "ok");
  EXPECT_EQ(Ink(true)(Tone::kPlain, "ok"), "ok");
  EXPECT_EQ(Ink(true)(Tone::kGood, ""), "");
}

TEST(DisplayWidth, CountsCharactersAndNoColourCodes) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("5120 × 8"), 8U);
  EXPECT_EQ(display_width("██▌"), 3U);
  EXPECT_EQ(display_width(Ink(true)(Tone::kBold, "abc")), 3U);
  EXPECT_EQ(display_width("\x1b[31"), 0U);
}

TEST(Pad, FillsAndNeverCuts) {
  EXPECT_EQ(pad_left("×", 3), "  ×");
  EXPECT_EQ(pad_right("×", 3), "×  ");
  EXPECT_EQ(pad_left("long", 2), "long");
}

TEST(Shorten, KeepsBothEnds) {
  EXPECT_EQ(shorten("layers.0.mlp.up", 15), "layers.0.mlp.up");
  EXPECT_EQ(shorten("abcdefghij", 7), "ab…ghij");
  EXPECT_EQ(shorten("äöüßäöüßäö", 7), "äö…üßäö");
  for (size_t width = 1; width < 12; ++width)
    EXPECT_EQ(display_width(shorten("äbcdefghijklmnop", width)), width);
}

TEST(Wrap, BreaksAtSpacesOnly) {
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrap("averylongword x", 4, 0), "averylongword\nx");
  EXPECT_EQ(wrap("", 10, 0), "");
}

}  // namespace
}  // namespace canzona::report::terminal_style_test
