#include "canzona/report/runs/run_report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/report/runs/test_runs.h"

namespace canzona::report::run_report_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>'\"";

std::string page_of(const std::vector<TrainingRun>& runs) {
  return run_report(compare_runs(runs, 0));
}

Json json_of(const std::vector<TrainingRun>& runs) {
  return parse_json(to_json(runs_view(compare_runs(runs, 0))),
                    {.what = "runs"});
}

std::vector<TrainingRun> three() {
  return {make_run({.name = "adamw", .floor = 2}),
          make_run({.name = "muon", .digest = "bb"}),
          make_run({.name = "soap", .floor = 1.4, .digest = "bb"})};
}

TEST(RunReport, TellsWhatAPageShowsOfOneRun) {
  const Json json = json_of({make_run({})});
  EXPECT_EQ(json["report"], "runs");
  EXPECT_THAT(json["verdict"].get<std::string>(),
              HasSubstr("the training loss went from"));
  const Json& run = json["runs"][0];
  EXPECT_EQ(run["parameters"], 1'234'567);
  EXPECT_EQ(run["num_ranks"], 4);
  EXPECT_EQ(run["configuration"][0], Json::array({"rule.name", "muon"}));
  EXPECT_THAT(run["environment"].dump(), HasSubstr("a CPU"));
  EXPECT_EQ(run["ranks"]["rows"].size(), 4u);
  EXPECT_EQ(run["ranks"]["columns"].size(), run["ranks"]["rows"][0].size());
}

// A curve ends where the run does, over steps, tokens and time.
TEST(RunReport, CurvesReachTheEnd) {
  const TrainingRun run = make_run({.steps = 1234});
  const Json curves = json_of({run})["runs"][0]["curves"];
  for (const char* name : {"smoothed", "evaluation"}) {
    EXPECT_LE(curves[name].size(), 481u);
    ASSERT_EQ(curves[name].back().size(), 4u);
  }
  EXPECT_EQ(curves["smoothed"].back()[0], 1234);
  EXPECT_NEAR(curves["smoothed"].back()[1].get<double>(), 2048 * 1234, 10);
  EXPECT_NEAR(curves["smoothed"].back()[2].get<double>(), 246.8, 1e-3);
  EXPECT_EQ(curves["learning_rate"].back(), Json::array({1234, 0}));
  EXPECT_EQ(curves["hidden_percent"][0][1], 90);
}

TEST(RunReport, ComparesSeveral) {
  const Json json = json_of(three());
  EXPECT_EQ(json["verdict"].get<std::string>().find(
                "soap ends with the lowest evaluation loss"),
            0u);
  // Time and steps to equal loss, which soap reaches first.
  const Json& reached = json["runs"][2]["reached"];
  EXPECT_THAT(
      json["verdict"].get<std::string>(),
      AllOf(HasSubstr(times_text(reached["steps_ratio"].get<double>()) +
                      " the steps and "),
            HasSubstr(times_text(reached["seconds_ratio"].get<double>()) +
                      " the time: "),
            HasSubstr(" against 0:40.")));
  EXPECT_EQ(json["baseline_run"], 0);
  EXPECT_EQ(json["runs"][1]["weights"], json["runs"][2]["weights"]);
  EXPECT_NE(json["runs"][0]["weights"], json["runs"][1]["weights"]);
}

TEST(RunReport, AsksTheNetworkForNothingAndEscapes) {
  TrainingRun run = make_run({.name = kHostile});
  run.summary->environment.cpu = kHostile;
  run.summary->strategy = kHostile;
  run.summary->mesh = kHostile;
  run.summary->data = kHostile;
  run.summary->config[kHostile] = kHostile;
  for (const std::string& html :
       {page_of({run}), page_of({run, make_run({})})}) {
    EXPECT_THAT(html, Not(HasSubstr("<img")));
    for (const char* word : {"http://", "https://", "<link", "@import"})
      EXPECT_THAT(html, Not(HasSubstr(word)));
    EXPECT_THAT(html, HasSubstr("script-src 'sha256-"));
    EXPECT_THAT(html, HasSubstr("<noscript>"));
  }
}

TEST(RunReport, IsTheSameEveryTime) {
  EXPECT_EQ(page_of(three()), page_of(three()));
}

TEST(RunReport, TakesRunsWithLittleInThem) {
  TrainingRun bare;
  bare.name = "bare";
  EXPECT_TRUE(json_of({bare})["runs"][0]["curves"]["learning_rate"].empty());
  TrainingRun lost = make_run({.steps = 3});
  lost.summary.reset();
  for (StepMetrics& step : lost.steps) step.loss = std::nan("");
  for (const auto& runs : std::vector<std::vector<TrainingRun>>{
           {lost}, {lost, bare}, {make_run({.steps = 1, .ranks = 1}), lost}}) {
    EXPECT_TRUE(json_of(runs)["runs"].back()["final_loss"].is_null());
    EXPECT_THAT(print_text(runs_view(compare_runs(runs, 0)), Ink()),
                Not(HasSubstr("nan")));
  }
  EXPECT_THROW(page_of({}), UsageError);
}

// Its summary was written when it began: rule and mesh are known.
TEST(RunReport, SaysThatARunDidNotFinish) {
  TrainingRun killed = make_run({.steps = 7});
  killed.summary->state = "running";
  killed.summary->steps = 0;
  killed.summary->pid = 4711;
  killed.summary->environment.host = "node7";
  EXPECT_EQ(killed.num_steps(), 7);
  for (const auto& runs : std::vector<std::vector<TrainingRun>>{
           {killed}, {make_run({.name = "adamw"}), killed}}) {
    const Json run = json_of(runs)["runs"].back();
    EXPECT_THAT(run["remark"].get<std::string>(), HasSubstr("did not finish"));
    EXPECT_EQ(run["mesh"], "dp=2,tp=2");
    EXPECT_THAT(print_text(runs_view(compare_runs(runs, 0)), Ink()),
                AllOf(HasSubstr("muon: did not finish: process 4711 on node7"),
                      HasSubstr("dp=2,tp=2")));
  }
  const std::vector<TrainingRun> runs = {killed};
  const Json json = json_of(runs);
  EXPECT_EQ(json["runs"][0]["complete"], false);
  EXPECT_EQ(json["runs"][0]["state"], "running");
  EXPECT_EQ(json["runs"][0]["rule"], "muon");
}

TEST(RunReport, NamesWhatWasSkippedAndNoted) {
  TrainingRun run = make_run({.steps = 8});
  for (size_t i = 1; i < 8; ++i) {
    run.steps[i].skipped = true;
    run.steps[i].nonfinite_tensor = "layers.0.q";
    run.steps[i].nonfinite_rank = 3;
  }
  run.summary->state = "diverged";
  run.summary->notes = {"no config.json"};
  const char* kSkipped = "7 of 8 steps were skipped";
  const char* kWhere = "the gradient of layers.0.q was not finite on rank 3";
  EXPECT_THAT(page_of({run}), AllOf(HasSubstr(kSkipped), HasSubstr(kWhere),
                                    HasSubstr("diverged")));
  const std::vector<TrainingRun> runs = {run};
  std::string text = print_text(runs_view(compare_runs(runs, 0)), Ink());
  std::ranges::replace(text, '\n', ' ');
  EXPECT_THAT(text, AllOf(HasSubstr(kSkipped), HasSubstr("layers.0.q"),
                          HasSubstr("diverged"), HasSubstr("no config.json")));
}

TEST(RunReport, D8NamesTheSpikeThatEndedARun) {
  TrainingRun run = make_run({.steps = 8});
  run.summary->state = "diverged";
  run.summary->steps = run.summary->spike_step = 8;
  run.summary->spikes = 1;
  run.summary->spike_loss = 8.1;
  run.summary->spike_over = 0.05;
  EXPECT_THAT(
      page_of({run}),
      AllOf(HasSubstr("diverged: the loss of step 8 was 8.1000, 162 times"),
            HasSubstr("1 of 8 steps had a loss spike"),
            Not(HasSubstr("too many steps"))));
  const std::vector<TrainingRun> runs = {run};
  const Json json = json_of(runs);
  EXPECT_EQ(json["runs"][0]["spikes"], 1);
  EXPECT_EQ(json["runs"][0]["spike_step"], 8);
  EXPECT_EQ(json["runs"][0]["spike_loss"], 8.1);
  EXPECT_EQ(json["runs"][0]["spike_over"], 0.05);
}

TEST(RunReport, SaysWhenEvaluationsAreOfDifferentTexts) {
  std::vector<TrainingRun> runs = three();
  for (TrainingRun& run : runs) run.summary->eval_sequences = 100;
  const char* kRemark = "evaluation losses are for different texts";
  EXPECT_THAT(page_of(runs), Not(HasSubstr(kRemark)));
  runs[1].summary->eval_sequences = 40;
  EXPECT_THAT(page_of(runs), HasSubstr(kRemark));
  EXPECT_THAT(print_text(runs_view(compare_runs(runs, 0)), Ink()),
              HasSubstr(kRemark));
}

TEST(RunReport, HasPerplexityAndWhatWasMeasuredOfSpeed) {
  std::vector<TrainingRun> runs = {make_run({})};
  TrainingRun& run = runs.front();
  run.summary->eval_loss = 0.5;
  EXPECT_TRUE(json_of(runs)["runs"][0]["mfu"].is_null());
  EXPECT_THAT(print_text(runs_view(compare_runs(runs, 0)), Ink()),
              AllOf(HasSubstr("perplexity"), HasSubstr("1.649"),
                    Not(HasSubstr("MFU"))));
  run.summary->flops_per_token = 1e6;
  run.summary->product_flops_per_second = 4 * 1e6 * run.tokens_per_second();
  EXPECT_THAT(print_text(runs_view(compare_runs(runs, 0)), Ink()),
              AllOf(HasSubstr("MFU"), HasSubstr("25.0 %")));
  const Json json = json_of(runs);
  EXPECT_NEAR(json["runs"][0]["mfu"].get<double>(), 0.25, 1e-12);
  EXPECT_NEAR(json["runs"][0]["perplexity"].get<double>(), 1.6487, 1e-4);
}

TEST(RunReport, LongRunsAndManyRanksStaySmall) {
  const std::vector<TrainingRun> runs = {
      make_run({.steps = 100'000, .ranks = 2048})};
  EXPECT_LT(page_of(runs).size(), 1'500'000u);
}

TEST(RunText, TellsWhoWonInAPage) {
  const std::vector<TrainingRun> runs = three();
  const std::string text = print_text(runs_view(compare_runs(runs, 0)), Ink());
  for (const char* words :
       {"Runs", "adamw", "muon", "To reach the evaluation loss of adamw",
        "200 (1.00 ×)", " the time: 0:", "bit-identical: muon, soap",
        "rule.name"})
    EXPECT_THAT(text, HasSubstr(words));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    EXPECT_LE(display_width(text.substr(begin, end - begin)), kPageWidth);
}

TEST(RunText, CurvesGoFromHighToLow) {
  EXPECT_EQ(sparkline(std::vector<double>{3, 2, 1}, 10), "█▅▁");
  EXPECT_EQ(sparkline(std::vector<double>{}, 10), "");
  EXPECT_EQ(sparkline(std::vector<double>{1}, 10), "▁");
  EXPECT_EQ(display_width(sparkline(std::vector<double>(1000, 1), 10)), 10u);
}

TEST(RunJson, HasTheFigures) {
  const std::vector<TrainingRun> runs = three();
  const Json json = json_of(runs);
  EXPECT_EQ(json["baseline"], "adamw");
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][0]["reached"]["steps_ratio"], 1);
  EXPECT_EQ(json["runs"][1]["same_as_baseline"], false);
  EXPECT_EQ(json["runs"][2]["eval_loss"], runs[2].eval_loss());
}

}  // namespace
}  // namespace canzona::report::run_report_test
