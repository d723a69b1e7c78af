#include "canzona/report/terminal.h"

#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/text.h"

namespace canzona::report::terminal_bars_test {
namespace {

TEST(Bar, CountsEighths) {
  EXPECT_EQ(bar(0.5, 1, 8), "████");
  EXPECT_EQ(bar(1, 1, 2), "██");
  EXPECT_EQ(bar(5, 16, 2), "▋");
  EXPECT_EQ(bar(0, 1, 8), "");
}

TEST(Bar, ShowsWhatIsNotZero) { EXPECT_EQ(bar(1e-9, 1, 8), "▏"); }

TEST(Bar, MarksWhatDoesNotFit) {
  EXPECT_EQ(bar(100, 1, 4), "███»");
  EXPECT_EQ(bar(1e300, 1e-300, 4), "███»");
}

TEST(Bar, SurvivesAnEmptyScale) { EXPECT_EQ(bar(1, 0, 4), ""); }

TEST(Strip, HasOneCharacterPerValue) {
  EXPECT_EQ(upright_bars(std::vector<double>{0, 1, 2, 4, 8}, 8), "·▁▂▄█");
}

std::string picture(const std::vector<double>& loads, int32_t row_unit = 1) {
  return load_picture({.loads = loads, .mean = 1, .row_unit = row_unit}, Ink());
}

TEST(LoadPicture, GivesFewRanksABarEach) {
  const std::string text = picture({1, 0.5, 0});
  EXPECT_EQ(split_text(text, '\n').size(), 4U);  // three lines and the end
  EXPECT_NE(text.find("rank 1  0.5000  ████████████████████\n"),
            std::string::npos)
      << text;
}

TEST(LoadPicture, NoRanksNoPicture) { EXPECT_EQ(picture({}), ""); }

TEST(LoadPicture, RowsHoldWholeHomes) {
  const std::string text = picture(std::vector<double>(96, 1.0), 24);
  EXPECT_NE(text.find("rank 48"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 64"), std::string::npos) << text;
}

TEST(LoadPicture, StaysOnAPageForManyRanks) {
  for (const size_t ranks : {17U, 256U, 1024U, 1025U, 100'000U}) {
    const auto lines =
        split_text(picture(std::vector<double>(ranks, 1.0)), '\n');
    EXPECT_LE(lines.size(), 18U) << ranks;
    for (const std::string& line : lines)
      EXPECT_LE(display_width(line), kPageWidth) << ranks;
  }
}

TEST(LoadPicture, SharedBlocksShowTheLargest) {
  std::vector<double> loads(5000, 0.0);
  loads[4999] = 1;
  EXPECT_NE(picture(loads).find("█"), std::string::npos);
}

}  // namespace
}  // namespace canzona::report::terminal_bars_test
