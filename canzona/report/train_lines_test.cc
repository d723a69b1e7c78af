#include "canzona/report/train_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace canzona::report::train_lines_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

StepMetrics sample() {
  StepMetrics m;
  m.step = 10;
  m.loss = 4.12341;
  m.grad_norm = 1.23;
  m.lr = 1e-3;
  m.tokens_per_second = 12345.4;
  m.optimizer_ms = 3.21;
  m.comm_ms = 1.14;
  m.hidden_fraction = 0.93;
  m.memory_bytes = 123 << 20;
  return m;
}

TEST(TrainLines, AStepIsOneLine) {
  EXPECT_EQ(step_line(sample(), 200),
            "step:  10  loss:  4.1234  grad_norm:   1.23  lr: 1.0e-03  "
            "tps:  12,345  opt:   3.2ms  comm:   1.1ms ( 93% hidden)  "
            "memory: 123MiB");
}

TEST(TrainLines, ColumnsStayInPlace) {
  StepMetrics first = sample();
  first.step = 1;
  StepMetrics last = sample();
  last.step = 200;
  last.loss = 1.5;
  last.optimizer_ms = 250.4;
  last.hidden_fraction = 1;
  EXPECT_EQ(step_line(first, 200).find("memory"),
            step_line(last, 200).find("memory"));
  EXPECT_THAT(step_line(last, 200), HasSubstr("(100% hidden)"));
}

// 99.99 % is not all of it.
TEST(TrainLines, HiddenIsRoundedDown) {
  StepMetrics m = sample();
  m.hidden_fraction = 0.9999;
  EXPECT_THAT(step_line(m, 1), HasSubstr("( 99% hidden)"));
  m.hidden_fraction = -0.5;
  EXPECT_THAT(step_line(m, 1), HasSubstr("(  0% hidden)"));
}

TEST(TrainLines, AnEvaluationHasALineOfItsOwn) {
  EXPECT_EQ(evaluation_line(7, 0.5, 200),
            "step:   7  eval_loss:  0.5000  perplexity: 1.649");
  EXPECT_THAT(evaluation_line(7, std::nan(""), 200), HasSubstr("–"));
  EXPECT_THAT(evaluation_line(7, 1e9, 200), HasSubstr("perplexity: –"));
}

TEST(TrainLines, SaysWhatIsUnusual) {
  StepMetrics m = sample();
  EXPECT_THAT(step_line(m, 200), Not(HasSubstr("mfu")));
  m.mfu = 0.345;
  EXPECT_THAT(step_line(m, 200), EndsWith("  mfu: 34.5%"));
  m.skipped = true;
  m.nonfinite_tensor = "layers.0.q\x1b[2J";
  m.nonfinite_rank = 3;
  EXPECT_THAT(step_line(m, 200),
              HasSubstr("skipped: the gradient of layers.0.q"));
  EXPECT_THAT(step_line(m, 200), EndsWith("was not finite on rank 3"));
  EXPECT_THAT(step_line(m, 200), Not(HasSubstr("\x1b")));
  m.nonfinite_rank = -1;
  EXPECT_THAT(step_line(m, 200), EndsWith("in the sum over ranks"));
  m.loss = std::nan("");
  m.tokens_per_second = std::nan("");
  m.memory_bytes = int64_t{64} << 30;
  EXPECT_THAT(step_line(m, 200), HasSubstr("skipped"));
  EXPECT_THAT(step_line(m, 200), HasSubstr("nan"));
  EXPECT_THAT(step_line(m, 200), HasSubstr("64.0GiB"));
}

TEST(TrainLines, ASaveHasALineOfItsOwn) {
  EXPECT_EQ(saved_line({40, 50'331'648, 0.3, 0.004}, 200),
            "step:  40  saved 48.00 MiB in 300 ms, paused for 4.00 ms");
}

TEST(TrainLines, TheEndTellsOfLateRanksAndCheckpoints) {
  RunSummary summary;
  summary.steps = 10;
  EXPECT_THAT(closing_lines(summary, ""), Not(HasSubstr("late")));
  EXPECT_THAT(closing_lines(summary, ""), Not(HasSubstr("checkpoint")));
  summary.late_rank = 2;
  summary.late_seconds_per_step = 0.203;
  summary.saves = 2;
  summary.saved_step = 10;
  summary.save_pause_seconds = 0.01;
  EXPECT_THAT(closing_lines(summary, ""),
              HasSubstr("rank 2 was late by 203 ms in a step"));
  EXPECT_THAT(closing_lines(summary, ""),
              HasSubstr("saved 2 checkpoints, the last one of step 10"));
}

TEST(TrainLines, D8TheEndTellsOfSpikes) {
  RunSummary summary;
  summary.steps = 60;
  EXPECT_THAT(closing_lines(summary, ""), Not(HasSubstr("spike")));
  summary.spikes = 1;
  summary.spike_step = 41;
  summary.spike_loss = 8.1;
  summary.spike_over = 0.05;
  EXPECT_THAT(
      closing_lines(summary, ""),
      HasSubstr("1 of 60 steps had a loss spike; the loss of step 41 was "
                "8.1000, 162 times the median of those before it, 0.0500\n"));
  summary.spikes = 3;
  EXPECT_THAT(spikes_text(summary),
              HasSubstr("a loss spike; the last: the loss of step 41 was"));
}

TEST(TrainLines, ColoursTakeNoRoom) {
  EXPECT_EQ(display_width(step_line(sample(), 200, Ink(true))),
            display_width(step_line(sample(), 200)));
}

TEST(TrainLines, ProgressTellsTheTimeLeft) {
  const std::string line = progress_line({50, 200, 25, 2.5});
  EXPECT_THAT(line, HasSubstr("50/200"));
  EXPECT_THAT(line, HasSubstr("loss 2.500"));
  EXPECT_THAT(line, HasSubstr("2 steps/s"));
  EXPECT_THAT(line, EndsWith("ETA 1:15"));
  EXPECT_LE(display_width(line), 79u);
  EXPECT_THAT(progress_line({0, 200, 0, 0}), EndsWith("ETA ?"));
  EXPECT_THAT(progress_line({200, 200, 100, 1}), EndsWith("ETA 0:00"));
}

TEST(TrainLines, ProgressFitsWhereThereIsLittleRoom) {
  for (size_t width = 10; width < 120; ++width)
    EXPECT_LE(display_width(progress_line({50, 200, 25, 2.5}, width)), width);
}

TEST(TrainLines, ClocksRead) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(75.4), "1:15");
  EXPECT_EQ(clock_text(4000), "1:06:40");
  EXPECT_EQ(clock_text(-1), "?");
  EXPECT_EQ(clock_text(std::nan("")), "?");
}

}  // namespace
}  // namespace canzona::report::train_lines_test
