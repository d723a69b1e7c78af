#include "canzona/report/runs/run.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/report/runs/test_runs.h"

namespace canzona::report::run_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RunFolders : public FolderTest {
 protected:
  std::string save(const std::string& name, const TrainingRun& run) {
    const std::string folder = path(name);
    std::filesystem::create_directories(folder);
    std::string lines;
    for (const StepMetrics& step : run.steps) lines += json_line(step) + "\n";
    write_file(folder + "/metrics.jsonl", lines);
    if (run.summary)
      write_file(folder + "/summary.json", to_json(*run.summary));
    return folder;
  }

  static std::string message_of(const std::vector<std::string>& folders) {
    try {
      read_runs(folders);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
};

TEST_F(RunFolders, ReadsWhatARunLeft) {
  const TrainingRun run = make_run({});
  const std::vector<TrainingRun> read = read_runs({save("muon", run)});
  EXPECT_EQ(read[0].name, "muon");
  EXPECT_EQ(read[0].steps.size(), 200u);
  EXPECT_EQ(read[0].num_steps(), 200);
  EXPECT_EQ(read[0].eval_loss(), run.eval_loss());
  EXPECT_EQ(read[0].digest(), "aa");
  EXPECT_EQ(read[0].memory_bytes(), 100 << 20);
  EXPECT_NEAR(read[0].tokens_per_second(), 10240, 1e-6);
}

TEST_F(RunFolders, ARunWithoutASummaryIsReadAsFarAsItGot) {
  TrainingRun run = make_run({.steps = 35});
  run.summary.reset();
  const std::vector<TrainingRun> read = read_runs({save("r", run)});
  EXPECT_FALSE(read[0].summary);
  EXPECT_EQ(read[0].num_steps(), 35);
  EXPECT_EQ(read[0].tokens(), 35 * 2048);
  EXPECT_EQ(read[0].final_loss(), run.steps.back().loss);
  EXPECT_EQ(read[0].eval_loss(), run.steps[29].eval_loss);
  EXPECT_EQ(read[0].digest(), "");
}

TEST_F(RunFolders, NamesTellRunsApart) {
  const TrainingRun run = make_run({.steps = 1});
  const std::string a = save("a/run", run), b = save("b/run", run);
  std::vector<TrainingRun> read = read_runs({a, b});
  EXPECT_EQ(read[0].name, "a/run");
  EXPECT_EQ(read[1].name, "b/run");
  read = read_runs({a, a + "/"});
  EXPECT_NE(read[0].name, read[1].name);
}

TEST_F(RunFolders, NamesWhatIsWrong) {
  EXPECT_THAT(message_of({path("no")}), HasSubstr("no such folder"));
  EXPECT_THAT(message_of({folder_.path()}), HasSubstr("found neither"));
  EXPECT_THAT(message_of(std::vector<std::string>(25, folder_.path())),
              HasSubstr("25 runs"));
  write_file(path("metrics.jsonl"), "{}\n");
  EXPECT_THAT(message_of({folder_.path()}), HasSubstr("metrics.jsonl line 1"));
}

TEST_F(RunFolders, LongRunsAreRead) {
  const std::string folder = path("long");
  std::filesystem::create_directories(folder);
  std::string lines;
  StepMetrics m = step_of({}, 1);
  for (m.step = 1; m.step <= 100'000; ++m.step) lines += json_line(m) + "\n";
  write_file(folder + "/metrics.jsonl", lines);
  EXPECT_EQ(read_runs({folder})[0].num_steps(), 100'000);
}

TEST(Runs, TheBaselineHasANameOrAFolder) {
  const std::vector<TrainingRun> runs = {make_run({.name = "muon"}),
                                         make_run({.name = "adamw"})};
  EXPECT_EQ(baseline_of(runs, ""), 0u);
  EXPECT_EQ(baseline_of(runs, "adamw"), 1u);
  EXPECT_EQ(baseline_of(runs, "runs/adamw"), 1u);
  EXPECT_EQ(baseline_of(runs, "runs/adamw/"), 1u);
  EXPECT_THROW(baseline_of(runs, "soap"), UsageError);
}

// Evaluations of every tenth step; only they count.
TEST(Runs, ReachingALossIsMeasuredNotReadOff) {
  const std::vector<TrainingRun> runs = {
      make_run({.name = "adamw", .floor = 2}),
      make_run({.name = "muon", .floor = 1}),
      make_run({.name = "worse", .floor = 3})};
  const ComparedRuns all = compare_runs(runs, 0);
  EXPECT_EQ(all.target, runs[0].eval_loss());
  ASSERT_TRUE(all.reached[0]);
  EXPECT_EQ(all.reached[0]->steps, 200);
  EXPECT_EQ(all.reached[0]->steps_ratio, 1);
  ASSERT_TRUE(all.reached[1]);
  EXPECT_EQ(all.reached[1]->steps % 10, 0);
  EXPECT_LE(
      *runs[1].steps[static_cast<size_t>(all.reached[1]->steps) - 1].eval_loss,
      all.target);
  EXPECT_GT(
      *runs[1].steps[static_cast<size_t>(all.reached[1]->steps) - 11].eval_loss,
      all.target);
  EXPECT_EQ(all.reached[1]->steps_ratio,
            static_cast<double>(all.reached[1]->steps) / 200);
  EXPECT_FALSE(all.reached[2]);
}

TEST(Runs, EqualWeightsHaveEqualLetters) {
  std::vector<TrainingRun> runs = {make_run({.digest = "x"}),
                                   make_run({.digest = "y"}),
                                   make_run({.digest = "x"}), make_run({})};
  runs[3].summary.reset();
  EXPECT_THAT(compare_runs(runs, 0).letters, ElementsAre("A", "B", "A", ""));
}

TEST(Runs, WithoutEvaluationsNothingIsReached) {
  std::vector<TrainingRun> runs = {make_run({}), make_run({})};
  for (TrainingRun& run : runs) {
    run.summary->eval_loss = std::nan("");
    for (StepMetrics& step : run.steps) step.eval_loss.reset();
  }
  const ComparedRuns all = compare_runs(runs, 0);
  EXPECT_TRUE(std::isnan(all.target));
  EXPECT_FALSE(all.reached[1]);
}

TEST(RunFacts, NestedNamesAreJoinedAndDifferencesMarked) {
  TrainingRun one = make_run({.name = "muon"});
  TrainingRun two = make_run({.name = "adamw"});
  two.summary->config["extra"] = {{"deep", {1, 2}}};
  const Facts facts = configuration_of(two);
  EXPECT_THAT(facts, ElementsAre(std::pair("extra.deep", "[1,2]"),
                                 std::pair("rule.name", "adamw"),
                                 std::pair("seed", "1")));
  const auto rows = side_by_side({configuration_of(one), facts});
  ASSERT_EQ(rows.size(), 3u);
  for (const FactRow& row : rows) EXPECT_EQ(row.differs, row.name != "seed");
}

}  // namespace
}  // namespace canzona::report::run_test
