// A run's state survives as text, and determines where it resumes.
#include "canzona/train/resume.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/base/files.h"
#include "canzona/train/stage.h"
#include "canzona/train/test_training.h"

namespace canzona::train::run_state_test {
namespace {

using Texts = std::map<std::string, std::string>;

const RunState kState{.step = 70,
                      .sequences = 1120,
                      .tokens = 13440,
                      .seconds = 12.25,
                      .last_loss = 2.5,
                      .skipped_steps = 4,
                      .skipped_in_a_row = 2,
                      .nonfinite_tensor = "model.norm.weight",
                      .nonfinite_rank = 3,
                      .recent_losses = {2.75, 0.1, 1.0 / 3, 2.5},
                      .spikes = {2, 60, 31.5, 0.3},
                      .starts = 2};
const DataIdentity kData{
    .description = "book.txt", .digest = "ab12", .length = 12, .seed = 9};

Texts texts_of(const RunState& state) {
  return {{"data.json", data_json(state, kData)},
          {"run.json", run_json(state)}};
}

TEST(RunState, ReadsWhatWasWritten) {
  const RunState read = read_run_state(texts_of(kState), "ckpt/step_00000070");
  EXPECT_EQ(read.step, 70);
  EXPECT_EQ(read.sequences, 1120);
  EXPECT_EQ(read.tokens, 13440);
  EXPECT_EQ(read.seconds, 12.25);
  EXPECT_EQ(read.last_loss, 2.5);
  EXPECT_EQ(read.skipped_steps, 4);
  EXPECT_EQ(read.skipped_in_a_row, 2);
  EXPECT_EQ(read.nonfinite_tensor, "model.norm.weight");
  EXPECT_EQ(read.nonfinite_rank, 3);
  EXPECT_EQ(read.recent_losses, kState.recent_losses);
  EXPECT_EQ(read.spikes.count, 2);
  EXPECT_EQ(read.spikes.step, 60);
  EXPECT_EQ(read.spikes.loss, 31.5);
  EXPECT_EQ(read.spikes.over, 0.3);
  EXPECT_EQ(read.starts, 2);
  const DataIdentity data =
      read_data_identity(data_json(kState, kData), "ckpt");
  EXPECT_EQ(data.digest, "ab12");
  EXPECT_EQ(data.description, "book.txt");
  EXPECT_EQ(data.length, 12);
  EXPECT_EQ(data.seed, 9U);
}

TEST(RunState, ALossThatIsNotFiniteStaysSo) {
  RunState state = kState;
  state.last_loss = std::nan("");
  EXPECT_TRUE(std::isnan(read_run_state(texts_of(state), "c").last_loss));
}

// run.json from before spikes were recorded.
TEST(RunState, D8OlderCheckpointsHaveNoRecentLosses) {
  Texts texts = texts_of(kState);
  texts["run.json"] =
      R"({"step": 70, "starts": 2, "seconds": 12.25, "tokens": 13440,
          "last_loss": 2.5, "skipped_steps": 4, "skipped_in_a_row": 2,
          "nonfinite_tensor": "", "nonfinite_rank": -1})";
  const RunState read = read_run_state(texts, "c");
  EXPECT_EQ(read.step, 70);
  EXPECT_TRUE(read.recent_losses.empty());
  EXPECT_EQ(read.spikes.count, 0);
  EXPECT_EQ(read.spikes.step, -1);
}

TEST(RunState, D8RecentLossesThatMakeNoSenseAreRefused) {
  RunState state = kState;
  state.recent_losses.assign(17, 2.0);
  EXPECT_THAT([&] { read_run_state(texts_of(state), "here"); },
              testing::ThrowsMessage<DataLost>(
                  testing::AllOf(testing::HasSubstr("here/run.json"),
                                 testing::HasSubstr("recent_losses"))));
  state.recent_losses = {2.0, std::nan("")};
  EXPECT_THROW(read_run_state(texts_of(state), "here"), DataLost);
}

TEST(RunState, NamesTheFileThatIsMissingOrWrong) {
  Texts texts = texts_of(kState);
  texts.erase("data.json");
  EXPECT_THAT([&] { read_run_state(texts, "runs/one/ckpt/step_00000070"); },
              testing::ThrowsMessage<DataLost>(
                  testing::AllOf(testing::HasSubstr("step_00000070"),
                                 testing::HasSubstr("data.json"))));
  for (const char* text :
       {"", "[]", "{}", "{\"step\": -1}", "{\"step\": 1e99}"})
    EXPECT_THAT(
        [&] {
          read_run_state(
              {{"data.json", data_json(kState, kData)}, {"run.json", text}},
              "here");
        },
        testing::ThrowsMessage<DataLost>(testing::HasSubstr("here/run.json")))
        << text;
}

// The position counts sequences, whatever the batch size was.
TEST(RunState, AnotherBatchGoesOnWhereTheDataWas) {
  const TestTokens tokens(3000);
  const Batches batches(tokens, {.length = 12, .seed = 9});
  DecoderConfig config;
  config.length = 12;
  config.micro_batch = 2;
  MicroBatches share(batches, config, 8, /*home=*/1, /*num_homes=*/2);
  share.go_on_after(10, 160);  // ten steps of 16
  EXPECT_EQ(share.sequences_after(10), 160);
  EXPECT_EQ(share.sequences_after(13), 184);
  EXPECT_EQ(share.tokens_after(13), 184 * 12);
  std::vector<int32_t> read(26), expected(13);
  share.read_train(12, 1, read);
  for (const int64_t i : {0, 1}) {
    // Step 11 took 160 to 167; the second micro-batch of home 1 is the fourth.
    batches.train(168 + 6 + i, expected);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), read.begin() + 13 * i));
  }
}

TEST(RunState, ARunThatStartsLaterCountsOn) {
  RunState start = kState;
  start.step = 4;
  start.sequences = 64;
  start.tokens = 64 * 12;
  const TestOutcome run =
      run_test({.mesh = "dp=2", .steps = 6, .start = start, .global_batch = 8});
  ASSERT_EQ(run.steps.size(), 2);
  EXPECT_EQ(run.steps[0].step, 5);
  EXPECT_EQ(run.steps[1].tokens, (64 + 16) * 12);
  EXPECT_GT(run.steps[0].seconds, 12.25);
  EXPECT_EQ(run.result.steps, 6);
  EXPECT_EQ(run.result.steps_here, 2);
  EXPECT_EQ(run.result.skipped_steps, 4);
  EXPECT_GT(run.result.seconds, 12.25);
  // Nothing is left to do.
  const TestOutcome none = run_test({.steps = 4, .start = start});
  EXPECT_TRUE(none.steps.empty());
  EXPECT_EQ(none.result.steps, 4);
  EXPECT_EQ(none.result.final_loss, 2.5);
}

TEST(RunState, D5SkippedStepsInARowAreCountedAcrossAStart) {
  RunState start;
  start.step = 1;
  start.sequences = 16;
  start.skipped_steps = start.skipped_in_a_row = 2;
  TestRun run{.mesh = "dp=2", .steps = 9, .clip = 0, .start = start};
  run.adamw_rate = 3e38;  // makes all gradients not finite from the second step
                          // on
  run.max_skipped = 3;
  const TestOutcome all = run_test(run);
  EXPECT_TRUE(all.result.diverged);
  EXPECT_EQ(all.result.steps, 5);
  EXPECT_EQ(all.result.skipped_steps, 2 + 3);
}

}  // namespace
}  // namespace canzona::train::run_state_test
