#include "canzona/report/html_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace canzona::html_loads_test {
namespace {

using testing::HasSubstr;

size_t count_of(const std::string& text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

LoadSeries even(const Mesh& mesh) {
  return {"even", "after",
          std::vector<double>(static_cast<size_t>(mesh.world()), 1.0)};
}

TEST(HtmlLoads, OneBarPerRankAndSeries) {
  const Mesh mesh{.dp = 4, .tp = 2};
  const std::string svg =
      load_bars(mesh, {even(mesh), even(mesh)}, {{1, "mean 1", "mean-line"}});
  EXPECT_EQ(count_of(svg, "data-q=\"rank:"), 16u);
  EXPECT_THAT(svg, HasSubstr("rank 5 (home 2, t 1), even: 1.0000 × mean"));
  EXPECT_THAT(svg, HasSubstr(">mean 1</text>"));
}

TEST(HtmlLoads, TheGridShowsEveryRankOf1024) {
  const Mesh mesh{.dp = 128, .tp = 8};
  const LoadGrid grid = load_grid(mesh, even(mesh), 1);
  EXPECT_EQ(count_of(grid.svg, "class=\"cell"), 1024u);
  EXPECT_EQ(grid.note, "");
  EXPECT_THAT(grid.svg, HasSubstr("rank 1023 (home 127, t 7)"));
}

TEST(HtmlLoads, TheGridOfManyStagesAndHomesKeepsEveryRank) {
  for (const Mesh& mesh :
       {Mesh{.dp = 1024}, Mesh{.dp = 300, .tp = 2, .pp = 3}, Mesh{.tp = 70}}) {
    LoadSeries series = even(mesh);
    series.loads.back() = 0;
    const LoadGrid grid = load_grid(mesh, series, 1);
    if (mesh.tp <= 64) {
      EXPECT_EQ(count_of(grid.svg, "class=\"cell"),
                static_cast<size_t>(mesh.world()));
      EXPECT_EQ(count_of(grid.svg, "heat0\""), 1u);
    }
  }
}

TEST(HtmlLoads, ALargerGridShowsTheBusiestOfSeveral) {
  const Mesh mesh{.dp = 1 << 17, .tp = 8};
  LoadSeries series = even(mesh);
  series.loads[100] = 5;
  const LoadGrid grid = load_grid(mesh, series, 1);
  EXPECT_LE(count_of(grid.svg, "class=\"cell"), 8192u + 128);
  EXPECT_THAT(grid.note, HasSubstr("128 ranks"));
  EXPECT_EQ(count_of(grid.svg, "heat10"), 1u);
  EXPECT_THAT(grid.svg, HasSubstr("rank 100 (home 12, t 4): 5.000 × mean"));
}

TEST(HtmlLoads, HeatClassesCoverIdleToOverloaded) {
  const Mesh mesh{.dp = 3};
  const LoadSeries series{"", "", {0, 1, 2.5}};
  const LoadGrid grid = load_grid(mesh, series, 1);
  for (const char* css : {"heat0\"", "heat5\"", "heat10\""}) {
    EXPECT_EQ(count_of(grid.svg, css), 1u) << css;
  }
  EXPECT_EQ(heat_classes().size(), 11u);
}

TEST(HtmlLoads, TheCurveStaysSmall) {
  const Mesh mesh{.dp = 1 << 17};
  LoadSeries series = even(mesh);
  for (size_t i = 0; i < series.loads.size(); ++i) {
    series.loads[i] = static_cast<double>(i % 977) / 488;
  }
  EXPECT_LT(load_curve({series}, {}).size(), 20'000u);
}

TEST(HtmlLoads, OneRankIsDrawn) {
  const Mesh mesh;
  EXPECT_THAT(load_bars(mesh, {even(mesh)}, {}), HasSubstr("rank 0"));
  EXPECT_THAT(load_grid(mesh, even(mesh), 1).svg, HasSubstr("rank 0"));
  EXPECT_THAT(load_curve({even(mesh)}, {}), HasSubstr("M"));
}

}  // namespace
}  // namespace canzona::html_loads_test
