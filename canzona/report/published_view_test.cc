#include "canzona/report/cluster_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"

namespace canzona::published_view_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<PredictedPaper> one_paper() {
  PredictedPaper shown;
  shown.paper.name = "A paper";
  shown.paper.source = "somewhere";
  shown.paper.fitted = {&PublishedRates::card_flops};
  shown.rates = {4e14, 2e11, 5e10};
  PublishedCell fitted;
  fitted.name = "fitted step";
  fitted.value = 0.5;
  fitted.fit = true;
  PublishedCell held = fitted;
  held.name = "held back";
  held.fit = false;
  held.note = "there is a reason";
  shown.cells = {{fitted, 0.5}, {held, 0.6}};
  shown.orders = {{"steps", false}};
  return {shown};
}

TEST(PublishedView, TextTellsErrorsAndReasons) {
  const std::string text = published_text(one_paper(), Ink());
  EXPECT_THAT(
      text, AllOf(HasSubstr("card 400 Tflop/s (fitted)"),
                  HasSubstr("200.0 GB/s inside a node,"), HasSubstr("+20.0 %"),
                  HasSubstr("order wrong"), HasSubstr("there is a reason"),
                  HasSubstr("largest error 20.0 %")));
}

TEST(PublishedView, NoLineIsWiderThanAPage) {
  for (const std::string& line : split_text(
           published_text(predict_published(published_papers()), Ink()), '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
}

TEST(PublishedView, JsonHasEveryNumber) {
  const Json json = parse_json(published_view_json(one_paper()), {});
  const Json& paper = json["papers"][0];
  EXPECT_EQ(paper["rates"]["card_tflops"], 400);
  EXPECT_EQ(paper["num_fitted"], 1);
  EXPECT_EQ(paper["cells"][1]["predicted"], 0.6);
  EXPECT_NEAR(paper["cells"][1]["error"].get<double>(), 0.2, 1e-12);
  EXPECT_EQ(paper["cells"][0]["fitted"], true);
  EXPECT_EQ(paper["orders"][0]["right"], false);
  EXPECT_NEAR(paper["worst_held_back_error"].get<double>(), 0.2, 1e-12);
}

}  // namespace
}  // namespace canzona::published_view_test
