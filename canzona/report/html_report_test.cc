#include "canzona/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/report/test_html_sample.h"

namespace canzona::html_report_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>";

std::string report_of(const Sample& sample) {
  return html_report({make_sample(sample)});
}

size_t count_of(const std::string& text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// Every opened element of these names is closed again.
void expect_balanced(const std::string& html) {
  for (const std::string name :
       {"section", "table", "tbody", "figure", "svg", "div", "dl", "ul",
        "details", "main", "header", "html", "p", "h2", "h3"}) {
    EXPECT_EQ(
        count_of(html, "<" + name + ">") + count_of(html, "<" + name + " "),
        count_of(html, "</" + name + ">"))
        << name;
  }
}

TEST(HtmlReport, SaysWhatAReaderMustKnow) {
  const std::string html = report_of({});
  for (const char* text :
       {"Canzona plan", "× the lower bound", "Idle ranks", "Memory per rank",
        "Bytes per rank", "Predicted step", "nominal rate, no cost table",
        "nominal links", "dp=4,tp=2", "muon", "balanced"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
}

TEST(HtmlReport, HasAllSections) {
  const std::string html = report_of({});
  for (const char* id : {"loads", "buckets", "micro-groups", "memory", "wire",
                         "schedule", "tensors", "words"}) {
    EXPECT_THAT(html, HasSubstr(std::string("<section id=\"") + id + "\""));
  }
  EXPECT_THAT(html, Not(HasSubstr("<section id=\"strategies\"")));
  expect_balanced(html);
}

TEST(HtmlReport, MeasuredRatesAndLinksAreNotCalledNominal) {
  ReportPlan shown = make_sample({});
  shown.plan.cost_basis.source = "H100";
  shown.plan.options.links.nominal = false;
  const std::string html = html_report({shown});
  EXPECT_THAT(html, HasSubstr("measured on H100"));
  EXPECT_THAT(html, Not(HasSubstr("nominal rate")));
  EXPECT_THAT(html, Not(HasSubstr("nominal links")));
}

TEST(HtmlReport, AsksTheNetworkForNothing) {
  const std::string html = report_of({});
  EXPECT_THAT(html, HasSubstr("default-src &#39;none&#39;"));
  EXPECT_THAT(html, HasSubstr("script-src &#39;sha256-"));
  for (const char* word :
       {"http://", "https://", "<link", "src=", "@import", "url(http"}) {
    EXPECT_THAT(html, Not(HasSubstr(word)));
  }
}

TEST(HtmlReport, EscapesNamesEverywhere) {
  Sample sample{.first_name = kHostile};
  ReportPlan shown = make_sample(sample);
  shown.plan.model.name = kHostile;
  shown.plan.cost_basis.source = kHostile;
  shown.plan.rule_options["a"] = kHostile;
  for (Tensor& tensor : shown.plan.model.tensors) tensor.name += kHostile;
  const std::string html = html_report({shown, shown});
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  // The data and the script, nothing else.
  EXPECT_EQ(count_of(html, "</script"), 2u);
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;&lt;img"));
}

TEST(HtmlReport, IsTheSameEveryTime) {
  const Sample sample{.mesh = {.dp = 16, .tp = 8}};
  ReportPlan shown = make_sample(sample);
  const std::string first = html_report({shown});
  shown.plan_seconds = 123;
  EXPECT_EQ(first, html_report({shown}));
}

TEST(HtmlReport, ComparesStrategies) {
  const std::string html = html_report(compare_sample({}));
  EXPECT_THAT(html, HasSubstr("Canzona compare"));
  EXPECT_THAT(html, HasSubstr("<section id=\"strategies\""));
  EXPECT_THAT(html, HasSubstr("before, start_offset"));
  EXPECT_THAT(html, HasSubstr("after, balanced"));
  EXPECT_THAT(html, HasSubstr("layerwise"));
  expect_balanced(html);
}

TEST(HtmlReport, BeforeIsTheFirstPlanWithoutStartOffset) {
  const std::string html =
      html_report({make_sample({.strategy = "megatron", .crowded = true}),
                   make_sample({.strategy = "contiguous"})});
  EXPECT_THAT(html, HasSubstr("before, megatron"));
  EXPECT_THAT(html, HasSubstr("after, contiguous"));
}

TEST(HtmlReport, Shows1024Ranks) {
  const std::string html =
      report_of({.mesh = {.dp = 128, .tp = 8}, .layers = 94, .experts = 8});
  // Once for a page, once for a narrow screen.
  EXPECT_EQ(count_of(html, "class=\"cell"), 2 * 1024u);
  EXPECT_THAT(html, HasSubstr("Ranks sorted by load"));
  expect_balanced(html);
}

TEST(HtmlReport, StaysSmallFor36000Tensors) {
  const std::vector<ReportPlan> plans = compare_sample(
      {.mesh = {.dp = 128, .tp = 8}, .layers = 94, .experts = 128});
  ASSERT_GT(plans[0].plan.model.tensors.size(), 36'000u);
  EXPECT_LT(html_report(plans).size(), 5'000'000u);
}

TEST(HtmlReport, ShowsMeshesOfEveryForm) {
  for (const Mesh& mesh :
       {Mesh{}, Mesh{.dp = 7}, Mesh{.tp = 8}, Mesh{.dp = 2, .tp = 2, .pp = 2},
        Mesh{.dp = 65}, Mesh{.dp = 2, .cp = 2, .tp = 2, .ep = 2}}) {
    const std::string html = report_of({.mesh = mesh});
    EXPECT_THAT(html, HasSubstr("<section id=\"words\""));
    EXPECT_THAT(html, Not(HasSubstr("nan")));
    expect_balanced(html);
  }
}

TEST(HtmlReport, ShowsAModelWithoutMatrices) {
  const std::string html = report_of({.matrices = false});
  EXPECT_THAT(html, HasSubstr("there is no matrix to own"));
  EXPECT_THAT(html, HasSubstr("No matrices, no load to balance."));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
  expect_balanced(html);
}

TEST(HtmlReport, ShowsAModelWithoutLayers) {
  expect_balanced(report_of({.layers = 0}));
}

TEST(HtmlReport, RepeatedUpdatesHaveNoHome) {
  ReportPlan shown = make_sample({.strategy = "replicated"});
  shown.plan.traffic = shown.plan.parts[0].traffic = Traffic::kAllReduce;
  std::fill(shown.plan.parts[0].home.begin(), shown.plan.parts[0].home.end(),
            kEveryHome);
  shown.plan.parts[0].owners = {};
  for (size_t m = 0; m < shown.plan.matrices.size(); ++m) {
    shown.plan.parts[0].owners.push_back(std::span<const int32_t>{});
  }
  const std::string html = html_report({shown});
  EXPECT_THAT(html, HasSubstr("every home repeats it"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">every</td>"));
}

TEST(HtmlReport, DrawsTheMemoryCap) {
  EXPECT_THAT(report_of({.memory_cap_bytes = int64_t{5} << 29}),
              HasSubstr(">cap 2.50 GiB</text>"));
}

TEST(HtmlReport, DrawsBucketsByHome) {
  const std::string html = report_of({});
  EXPECT_THAT(html, HasSubstr("bucket 1: home 2, 4 tensors"));
  EXPECT_THAT(html, HasSubstr("data-q=\"bucket:1 home:2\""));
  EXPECT_THAT(html, HasSubstr("bucket 0: AdamW tensors, cut anywhere"));
}

TEST(HtmlReport, DrawsOnlySoManyRunsAndSaysSo) {
  const std::string html =
      report_of({.mesh = {.dp = 256}, .layers = 400, .experts = 2});
  EXPECT_THAT(html, HasSubstr("The first 39 of 100 buckets are drawn."));
}

TEST(HtmlReport, RefusesAnEmptyList) {
  EXPECT_THROW(html_report({}), UsageError);
}

}  // namespace
}  // namespace canzona::html_report_test
