// Parameters that are gathered for each use, and gradients that leave with
// every micro-batch, give the same run.
#include <gtest/gtest.h>

#include "canzona/train/test_training.h"

namespace canzona::train::train_zero_test {
namespace {

void expect_same_bits(const TestOutcome& a, const TestOutcome& b,
                      const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t i = 0; i < a.steps.size(); ++i)
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << what << ", step " << i + 1;
  EXPECT_EQ(a.result.eval_loss, b.result.eval_loss) << what;
  EXPECT_EQ(a.result.digest, b.result.digest) << what;
  EXPECT_EQ(a.result.state_digest, b.result.state_digest) << what;
}

void expect_near_losses(const TestOutcome& a, const TestOutcome& b,
                        const std::string& what) {
  constexpr double kOtherSums = 1e-5;
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t i = 0; i < a.steps.size(); ++i)
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, kOtherSums * a.steps[i].loss)
        << what << ", step " << i + 1;
}

std::string name_of(const TestRun& run) {
  return run.mesh + " " + run.zero + (run.tied ? " tied" : "") +
         (run.reuse ? " reuse" : "");
}

// Several micro-batches a rank.
TEST(TrainZero, CutParametersDoNotChangeABit) {
  for (const TestRun& plain :
       {TestRun{.mesh = "dp=4", .tied = true}, TestRun{.mesh = "dp=2,tp=2"},
        TestRun{.mesh = "dp=2,pp=2", .tied = true},
        TestRun{.mesh = "dp=2,pp=4", .recompute = Recompute::kLayer},
        TestRun{.mesh = "dp=2,tp=2,pp=2", .tied = true},
        TestRun{.mesh = "dp=2", .experts = 4}}) {
    const TestOutcome right = run_test(plain);
    for (const char* zero : {"z1=2,z2=1,z3=2", "z1=1,z2=1,z3=1", "z3=2"})
      for (const MessageUnit message :
           {MessageUnit::kModule, MessageUnit::kParameter}) {
        TestRun run = plain;
        run.zero = zero;
        run.message = message;
        expect_same_bits(right, run_test(run), name_of(run));
      }
  }
}

TEST(TrainZero, CutGradientsDoNotChangeABitOfOneMicroBatch) {
  for (const TestRun& plain :
       {TestRun{.mesh = "dp=8"}, TestRun{.mesh = "dp=8", .tied = true},
        TestRun{.mesh = "dp=8,pp=2", .tied = true}}) {
    const TestOutcome right = run_test(plain);
    for (const char* zero : {"zero2", "zero3", "hier:2", "replica:4"}) {
      TestRun run = plain;
      run.zero = zero;
      expect_same_bits(right, run_test(run), name_of(run));
    }
  }
}

TEST(TrainZero, CutGradientsGiveTheLossesOfTheRun) {
  for (const TestRun& plain :
       {TestRun{.mesh = "dp=2", .experts = 4}, TestRun{.mesh = "dp=2,tp=2"},
        TestRun{.mesh = "dp=2,pp=2", .tied = true},
        TestRun{.mesh = "dp=2,pp=4"}}) {
    const TestOutcome right = run_test(plain);
    for (const char* zero : {"zero2", "zero3", "replica:2"})
      for (const MessageUnit message :
           {MessageUnit::kModule, MessageUnit::kParameter}) {
        TestRun run = plain;
        run.zero = zero;
        run.message = message;
        expect_near_losses(right, run_test(run), name_of(run));
      }
  }
}

// Experts on their own ranks, cut with the dense tensors or otherwise.
TEST(TrainZero, ExpertParallelismDoesNotChangeABitOfOneMicroBatch) {
  for (const TestRun& plain :
       {TestRun{.mesh = "dp=2,ep=4", .experts = 4},
        TestRun{.mesh = "dp=4,ep=2,pp=2", .experts = 4},
        TestRun{.mesh = "dp=4,ep=2,tp=2", .experts = 4}}) {
    const TestOutcome right = run_test(plain);
    for (const char* zero : {"zero3", "hier:2", "replica:4", "none"})
      for (const char* experts : {"", "zero3", "none"}) {
        TestRun run = plain;
        run.zero = zero;
        run.zero_experts = experts;
        expect_same_bits(right, run_test(run), name_of(run) + " " + experts);
      }
  }
}

TEST(TrainZero, ModesDoNotChangeABit) {
  TestRun run{.mesh = "dp=2,pp=2", .tied = true, .zero = "zero3"};
  const TestOutcome background = run_test(run);
  run.overlap = Overlap::kMain;
  expect_same_bits(background, run_test(run), "main");
  run.overlap = Overlap::kNone;
  expect_same_bits(background, run_test(run), "none");
}

// Forwards are the same; if gradients leave with each micro-batch, those of a
// pair are added on a rank before they are summed over ranks.
TEST(TrainZero, SharedUsesAreTheSameRun) {
  for (const char* mesh : {"dp=2,pp=2", "dp=2,pp=4"})
    for (const char* zero : {"z3=2", "zero2", "zero3"}) {
      TestRun run{.mesh = mesh, .tied = true, .zero = zero};
      const TestOutcome one_by_one = run_test(run);
      run.reuse = true;
      const TestOutcome shared = run_test(run);
      if (std::string(zero) == "z3=2") {
        expect_same_bits(one_by_one, shared, name_of(run));
      } else {
        expect_near_losses(one_by_one, shared, name_of(run));
        EXPECT_EQ(one_by_one.steps[0].loss, shared.steps[0].loss);
      }
    }
}

}  // namespace
}  // namespace canzona::train::train_zero_test
