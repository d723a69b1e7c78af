#include "canzona/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace canzona::html_svg_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(HtmlSvg, WritesShortCoordinates) {
  EXPECT_EQ(coordinate(12), "12");
  EXPECT_EQ(coordinate(0.04), "0");
  EXPECT_EQ(coordinate(-0.04), "0");
  EXPECT_EQ(coordinate(1.25, 2), "1.25");
  EXPECT_EQ(coordinate(100), "100");
}

TEST(HtmlSvg, HasATitleAndEscapesIt) {
  Svg svg(10, 20, "a < b");
  svg.rect({1, 2, 3, 4}, "s0", "</title><script>", "home:1");
  const std::string text = svg.take();
  EXPECT_THAT(text, HasSubstr("<title>a &lt; b</title>"));
  EXPECT_THAT(text, HasSubstr("&lt;/title&gt;&lt;script&gt;"));
  EXPECT_THAT(text, HasSubstr("data-q=\"home:1\""));
}

TEST(HtmlSvg, TicksAreRoundAndEndAtTheTop) {
  EXPECT_THAT(round_ticks(1.0, 4), ElementsAre(0, 0.25, 0.5, 0.75, 1.0));
  EXPECT_THAT(round_ticks(23, 5), ElementsAre(0, 5, 10, 15, 20));
  EXPECT_THAT(round_ticks(0, 5), ElementsAre(0));
}

TEST(HtmlSvg, LabelsMoveApart) {
  std::vector<SideLabel> labels{
      {100, "mean", ""}, {99, "bound", ""}, {20, "makespan", ""}};
  spread_labels(labels, 14);
  EXPECT_EQ(labels[0].text, "makespan");
  EXPECT_EQ(labels[0].y, 20);
  EXPECT_EQ(labels[1].y, 86);
  EXPECT_EQ(labels[2].y, 100);
}

}  // namespace
}  // namespace canzona::html_svg_test
