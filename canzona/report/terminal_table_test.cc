#include "canzona/report/terminal.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::report::terminal_table_test {
namespace {

TEST(Table, AlignsColumns) {
  Table table("<>");
  table.header({"kind", "max"});
  table.row({"states", "1 B"}).row({"×", "1000 B"});
  EXPECT_EQ(table.text(Ink()),
            "  kind       max\n"
            "  states     1 B\n"
            "  ×       1000 B\n");
}

TEST(Table, ColouredCellsTakeNoMoreRoom) {
  const Ink ink(true);
  Table table("<>");
  table.row({ink(Tone::kGood, "a"), "1"}).row({"bb", "2"});
  const auto lines = split_text(table.text(ink), '\n');
  EXPECT_EQ(display_width(lines[0]), display_width(lines[1]));
}

TEST(Table, ShortensTheFlexibleColumnToThePage) {
  Table table("~>");
  table.row({std::string(300, 'n'), "12345"}).row({"short", "1"});
  for (const std::string& line : split_text(table.text(Ink()), '\n'))
    EXPECT_LE(display_width(line), kPageWidth);
}

// A wide terminal is used, and a pipe has no width.
TEST(Table, AWiderInkShortensLess) {
  Table table("~>");
  table.row({std::string(300, 'n'), "12345"});
  const std::string line = split_text(table.text(Ink(false, 200)), '\n')[0];
  EXPECT_EQ(display_width(line), 200U);
  EXPECT_EQ(table.text(Ink(false, kAnyWidth)),
            "  " + std::string(300, 'n') + "  12345\n");
}

TEST(Table, LeavesTheOptionalColumnOutWhereItDoesNotFit) {
  Table table("<?");
  table.header({"a", "words"}).row({"b", std::string(120, 'w')});
  EXPECT_EQ(table.text(Ink()), "  a\n  b\n");
  EXPECT_EQ(table.text(Ink(false, 200)),
            "  a  words\n  b  " + std::string(120, 'w') + "\n");
}

TEST(Table, LinesEndWithoutSpaces) {
  Table table("<<");
  table.row({"a", ""}).row({"b", "long"});
  for (const std::string& line : split_text(table.text(Ink()), '\n'))
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
}

TEST(Table, RefusesRowsOfAnotherWidth) {
  Table table("<<");
  EXPECT_THROW(table.row({"a"}), InternalError);
}

}  // namespace
}  // namespace canzona::report::terminal_table_test
