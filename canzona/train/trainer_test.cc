// The same run on every mesh; the same bits with every plan.
#include "canzona/train/trainer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "canzona/base/error.h"
#include "canzona/train/stage.h"
#include "canzona/train/test_training.h"

namespace canzona::train::trainer_test {
namespace {

constexpr double kOtherSums = 1e-5;  // relative, of losses

void expect_same_losses(const TestOutcome& a, const TestOutcome& b,
                        const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t i = 0; i < a.steps.size(); ++i)
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, kOtherSums * a.steps[i].loss)
        << what << ", step " << i + 1;
  EXPECT_NEAR(a.result.eval_loss, b.result.eval_loss,
              kOtherSums * a.result.eval_loss)
      << what;
}

TEST(Train, Learns) {
  const TestOutcome run = run_test({.mesh = "dp=2,tp=2", .steps = 60});
  ASSERT_EQ(run.steps.size(), 60);
  EXPECT_GT(run.steps.front().loss, 3.3);  // ln 32 = 3.47
  EXPECT_LT(run.result.final_loss, 2.0);
  EXPECT_LT(run.result.eval_loss, 2.0);
  EXPECT_EQ(run.result.tokens, 60 * 16 * 12);
  EXPECT_EQ(run.steps.back().tokens, run.result.tokens);
  EXPECT_EQ(run.result.times.size(), 4);
}

TEST(Train, EveryMeshIsTheSameRun) {
  const TestOutcome one = run_test({});
  for (const char* mesh : {"dp=2", "dp=4", "dp=8", "tp=2", "tp=4", "pp=2",
                           "pp=4", "dp=2,tp=2", "dp=2,pp=2", "tp=2,pp=2"})
    expect_same_losses(one, run_test({.mesh = mesh}), mesh);
}

TEST(Train, EveryMeshIsTheSameRunWithExperts) {
  const TestOutcome one = run_test({.experts = 4});
  for (const char* mesh :
       {"dp=2", "ep=2", "ep=4", "tp=2", "dp=2,ep=2", "tp=2,ep=2", "ep=2,pp=2"})
    expect_same_losses(one, run_test({.mesh = mesh, .experts = 4}), mesh);
}

TEST(Train, ATiedHeadLearnsOnOtherStages) {
  const TestOutcome one = run_test({.tied = true});
  for (const char* mesh : {"pp=2", "pp=4", "dp=2,tp=2", "tp=2,pp=2"})
    expect_same_losses(one, run_test({.mesh = mesh, .tied = true}), mesh);
}

TEST(Train, EveryRuleLearnsOnAMesh) {
  for (const char* rule : {"adamw", "shampoo", "soap"}) {
    const TestOutcome one = run_test({.rule = rule});
    const TestOutcome four = run_test({.mesh = "dp=2,tp=2", .rule = rule});
    EXPECT_LT(four.result.final_loss, 0.99 * four.steps.front().loss) << rule;
    // SOAP's first bases are those of low-rank factors: the rest of the basis
    // depends on the last bits of the gradients.
    if (std::string(rule) != "soap") expect_same_losses(one, four, rule);
  }
}

TEST(Train, PlansDoNotChangeABit) {
  for (const char* mesh : {"dp=4", "dp=2,tp=2", "dp=2,pp=2"}) {
    const TrainResult balanced = run_test({.mesh = mesh}).result;
    for (const char* strategy : {"replicated", "layerwise", "start_offset",
                                 "contiguous", "megatron"}) {
      const TrainResult other =
          run_test({.mesh = mesh, .strategy = strategy}).result;
      EXPECT_EQ(other.digest, balanced.digest) << mesh << " " << strategy;
      EXPECT_EQ(other.state_digest, balanced.state_digest)
          << mesh << " " << strategy;
    }
    EXPECT_EQ(run_test({.mesh = mesh, .bucket_elements = 900}).result.digest,
              balanced.digest);
  }
}

TEST(Train, HeadsAreMatricesOfTheirOwnOnEveryPlan) {
  const std::string whole = run_test({.mesh = "dp=2,tp=2"}).result.digest;
  std::set<std::string> digests{whole};
  for (const char* split : {"head", "output-head", "head,output-head"}) {
    const TestOutcome one = run_test({.split = split});
    const TestOutcome four = run_test({.mesh = "dp=2,tp=2", .split = split});
    EXPECT_TRUE(digests.insert(four.result.digest).second) << split;
    expect_same_losses(one, four, split);
    for (const char* strategy : {"replicated", "layerwise", "contiguous"}) {
      const TrainResult other =
          run_test({.mesh = "dp=2,tp=2", .strategy = strategy, .split = split})
              .result;
      EXPECT_EQ(other.digest, four.result.digest) << strategy;
      EXPECT_EQ(other.state_digest, four.result.state_digest) << strategy;
    }
  }
}

TEST(Train, RecomputationDoesNotChangeABit) {
  const TestOutcome kept = run_test({.mesh = "dp=2,tp=2"});
  const TestOutcome again =
      run_test({.mesh = "dp=2,tp=2", .recompute = Recompute::kLayer});
  EXPECT_EQ(kept.result.digest, again.result.digest);
  EXPECT_LT(again.result.memory_bytes[0], kept.result.memory_bytes[0]);
}

// The contributions to a gradient are added in the same order.
TEST(Train, SharedUsesDoNotChangeABit) {
  for (const TestRun& run :
       {TestRun{.mesh = "pp=2"}, TestRun{.mesh = "pp=4", .tied = true},
        TestRun{.mesh = "pp=4", .recompute = Recompute::kLayer},
        TestRun{.mesh = "dp=2,pp=2", .experts = 4},
        TestRun{.mesh = "ep=2,pp=2", .experts = 4},
        TestRun{.mesh = "tp=2,pp=2", .tied = true},
        TestRun{.mesh = "dp=4,pp=4"}, TestRun{.mesh = "dp=8,pp=2"}}) {
    TestRun shared = run;
    shared.reuse = true;
    const TestOutcome a = run_test(run);
    const TestOutcome b = run_test(shared);
    for (size_t i = 0; i < a.steps.size(); ++i)
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << run.mesh;
    EXPECT_EQ(a.result.eval_loss, b.result.eval_loss) << run.mesh;
    EXPECT_EQ(a.result.digest, b.result.digest) << run.mesh;
    EXPECT_EQ(a.result.state_digest, b.result.state_digest) << run.mesh;
  }
}

TEST(Train, WeightsComeWholeFromEveryMesh) {
  const TestOutcome one = run_test({.experts = 4, .steps = 1});
  for (const char* mesh : {"tp=2,ep=2", "pp=2", "dp=2"}) {
    const TestOutcome other =
        run_test({.mesh = mesh, .experts = 4, .steps = 1});
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (const auto& [tensor, values] : one.tensors) {
      ASSERT_EQ(values.size(), other.tensors.at(tensor).size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], other.tensors.at(tensor)[i], 1e-3)
            << mesh << ", tensor " << tensor << ", element " << i;
    }
  }
}

TEST(Train, MemoryIsWhatWasPredicted) {
  for (const char* mesh : {"dp=1", "dp=2,tp=2", "pp=4", "tp=2,pp=2"}) {
    const TestRun run{.mesh = mesh, .steps = 1};
    const TrainSettings settings = test_settings(run);
    const Plan plan = test_plan(run, settings);
    int64_t planned = 0;
    for (const RankCost& rank : predict(plan))
      planned = std::max(planned, rank.memory.total().value());
    const TrainResult result = run_test(run).result;
    EXPECT_LE(std::ranges::max(result.memory_bytes),
              planned + training_memory(settings, plan))
        << mesh;
    if (plan.mesh.pp == 1) {
      EXPECT_EQ(std::ranges::max(result.memory_bytes),
                planned + training_memory(settings, plan))
          << mesh;
    }
  }
}

TEST(Train, EveryRanksMemoryIsWhatWasPredicted) {
  for (const char* mesh : {"pp=4", "tp=2,pp=2"}) {
    std::vector<int64_t> of_first;
    for (const bool reuse : {false, true}) {
      const TestRun run{.mesh = mesh, .tied = true, .reuse = reuse, .steps = 1};
      const TrainSettings settings = test_settings(run);
      const Plan plan = test_plan(run, settings);
      const std::vector<RankCost> costs = predict(plan);
      const TrainResult result = run_test(run).result;
      for (int32_t r = 0; r < plan.mesh.world(); ++r)
        EXPECT_EQ(
            result.memory_bytes[static_cast<size_t>(r)],
            costs[static_cast<size_t>(r)].memory.total().value() +
                Stage::memory(settings, plan, coordinates_of(plan.mesh, r)))
            << mesh << ", rank " << r;
      of_first.push_back(result.memory_bytes[0]);
    }
    // Gradients of two streams at once.
    EXPECT_GT(of_first[1], of_first[0]) << mesh;
  }
}

TEST(Train, StopsAfterTheStepItIsIn) {
  const std::atomic<int> stop = 15;
  const TestOutcome run = run_test({.mesh = "dp=2,tp=2", .stop = &stop});
  EXPECT_EQ(run.steps.size(), 1);
  EXPECT_TRUE(run.result.stopped);
  EXPECT_EQ(run.result.stop, 15);
  // A run that is asked to end does not wait for another evaluation.
  EXPECT_FALSE(run.steps.back().eval_loss.has_value());
  EXPECT_TRUE(std::isnan(run.result.eval_loss));
  EXPECT_FALSE(run.tensors.empty());
  EXPECT_FALSE(run.result.digest.empty());
}

// A run killed during the last evaluation has lost nothing else.
TEST(Train, WeightsAndResultComeBeforeTheLastEvaluation) {
  std::vector<std::string> told;
  const TestOutcome run = run_test(
      {.mesh = "dp=2,tp=2",
       .steps = 2,
       .eval_sequences = 4,
       .told = [&](const std::string& what) { told.push_back(what); }});
  EXPECT_THAT(told,
              testing::ElementsAre("step 1", "step 2", "tensor", "weights",
                                   "result", "evaluating", "eval 2"));
  EXPECT_EQ(run.before_evaluation.digest, run.result.digest);
  EXPECT_EQ(run.before_evaluation.steps, 2);
  EXPECT_TRUE(std::isnan(run.before_evaluation.eval_loss));
  EXPECT_GT(run.result.eval_loss, 0);
  EXPECT_EQ(run.result.eval_sequences, 4);
}

TEST(Train, AnEvaluationEndsAtTheFirstSignal) {
  for (const char* mesh : {"dp=1", "dp=2", "tp=2", "pp=2"})
    for (const int64_t steps : {2, 6}) {  // the last one, and that of step 3
      std::atomic<int> stop = 0;
      int parts = 0;
      TestRun wish{.mesh = mesh, .steps = steps, .stop = &stop};
      wish.micro_batch = 1;  // 12 held out: more than two parts on a rank
      wish.told = [&](const std::string& what) {
        if (what != "evaluating") return;
        ++parts;
        stop = 2;
      };
      const TestOutcome run = run_test(wish);
      EXPECT_EQ(parts, 1) << mesh;
      EXPECT_EQ(run.result.stop, 2) << mesh;
      EXPECT_EQ(run.result.steps, steps == 2 ? 2 : 3) << mesh;
      EXPECT_EQ(run.result.stopped, steps != 2) << mesh;
      EXPECT_TRUE(std::isnan(run.result.eval_loss)) << mesh;
      EXPECT_FALSE(run.tensors.empty()) << mesh;
    }
}

// 12 sequences are held out. With micro-batches of 8 the second is half full;
// the reference evaluates sequences one by one.
TEST(Train, EveryHeldOutSequenceCountsOnce) {
  for (const int64_t sequences : {1, 5, 8, 11, 12, 1000}) {
    TestRun one{.steps = 1, .eval_sequences = sequences};
    one.micro_batch = 1;
    const TestOutcome truth = run_test(one);
    for (const char* mesh : {"dp=1", "dp=2", "tp=2", "pp=2"}) {
      TestRun wish = one;
      wish.mesh = mesh;
      wish.micro_batch = 8;
      const TestOutcome run = run_test(wish);
      EXPECT_EQ(run.result.eval_sequences, std::min<int64_t>(sequences, 12));
      EXPECT_NEAR(run.result.eval_loss, truth.result.eval_loss,
                  kOtherSums * truth.result.eval_loss)
          << mesh << ", " << sequences << " sequences";
    }
  }
}

TEST(Train, EveryHeldOutSequenceCountsOnceWithExperts) {
  TestRun one{.experts = 4, .steps = 1, .eval_sequences = 11};
  one.micro_batch = 1;
  const TestOutcome truth = run_test(one);
  for (const char* mesh : {"dp=1", "ep=2", "tp=2"}) {
    TestRun wish = one;
    wish.mesh = mesh;
    wish.micro_batch = 8;
    EXPECT_NEAR(run_test(wish).result.eval_loss, truth.result.eval_loss,
                kOtherSums * truth.result.eval_loss)
        << mesh;
  }
}

TEST(Train, WithoutStepsThereIsNoLoss) {
  const TestOutcome run = run_test({.steps = 0, .eval_sequences = 0});
  EXPECT_TRUE(std::isnan(run.result.final_loss));
  EXPECT_TRUE(std::isnan(run.result.eval_loss));
  EXPECT_FALSE(run.tensors.empty());
}

// A learning rate that makes the weights overflow in the first step.
TEST(Train, SkippedStepsAreNamedAndTooManyInARowEndTheRun) {
  TestRun wish{.mesh = "dp=2,tp=2", .steps = 8, .clip = 0};
  wish.adamw_rate = 3e38;
  const TestOutcome all = run_test(wish);
  EXPECT_EQ(all.result.steps, 8);
  EXPECT_EQ(all.result.skipped_steps, 7);
  EXPECT_FALSE(all.result.diverged);
  EXPECT_FALSE(all.result.nonfinite_tensor.empty());
  EXPECT_FALSE(all.steps[0].skipped);
  for (size_t i = 1; i < all.steps.size(); ++i) {
    EXPECT_TRUE(all.steps[i].skipped);
    EXPECT_FALSE(all.steps[i].nonfinite_tensor.empty());
    EXPECT_TRUE(std::isnan(all.steps[i].grad_norm));
  }
  wish.max_skipped = 3;
  const TestOutcome few = run_test(wish);
  EXPECT_EQ(few.result.steps, 4);
  EXPECT_TRUE(few.result.diverged);
  EXPECT_EQ(few.result.digest, all.result.digest);
  EXPECT_FALSE(few.tensors.empty());
}

TEST(Train, EvaluatesAsOftenAsAskedAndAtTheEnd) {
  const TestOutcome run = run_test({.steps = 7});
  std::vector<int64_t> evaluated;
  for (const StepMetrics& step : run.steps)
    if (step.eval_loss) evaluated.push_back(step.step);
  EXPECT_THAT(evaluated, testing::ElementsAre(3, 6, 7));
}

TEST(Train, RefusesWhatCannotBeShared) {
  TrainSettings settings = test_settings({});
  EXPECT_NO_THROW(check_training(settings, parse_mesh("dp=8")));
  EXPECT_THAT(
      [&] { check_training(settings, parse_mesh("dp=3")); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr(
          "16 sequences cannot be divided among 3 data-parallel ranks")));
  EXPECT_THAT([&] { check_training(settings, parse_mesh("cp=2")); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("training does not support cp")));
}

}  // namespace
}  // namespace canzona::train::trainer_test
