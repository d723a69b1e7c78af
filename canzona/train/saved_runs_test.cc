// Runs that save and resume: with the bits of a run that was never interrupted,
// or on other ranks with exactly the state that was saved.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/train/test_training.h"

namespace canzona::train::saved_runs_test {
namespace {

TrainSaving saving_to(const std::string& folder, int64_t every,
                      int64_t keep_last = 0, bool background = true) {
  return {.every = every,
          .store = {.folder = folder,
                    .owner = "a test",
                    .keep_last = keep_last,
                    .background = background}};
}

std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const ListedCheckpoint& listed : list_checkpoints(Folder::open(folder)))
    steps.push_back(listed.step);
  return steps;
}

// Expects every byte of every checkpoint to be there, and nothing else.
void expect_sound(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    // A rank still wrote when another gave up: the next start removes this.
    if (name.find(".tmp-") != std::string::npos) continue;
    EXPECT_TRUE(name == "latest" || step_of_name(name).has_value()) << name;
    if (name == "latest") continue;
    EXPECT_TRUE(open_checkpoint(entry.path().string()).verify().empty())
        << name;
  }
}

TestRun resumed(TestRun run, const std::string& folder,
                const std::string& which) {
  run.saving = {};
  run.resume = LoadRequest{.folder = folder, .which = which};
  return run;
}

struct MeshPair {
  TestRun from;
  TestRun to;
  bool same_bits = false;
};

std::string name_of(const MeshPair& pair) {
  const auto text = [](const TestRun& run) {
    return run.mesh + " " + run.rule + " " + run.strategy + " " + run.zero;
  };
  return text(pair.from) + " -> " + text(pair.to);
}

// Runs 2·k steps at once, saving after some of them, and from each of these to
// the same end on other ranks.
void expect_goes_on(MeshPair pair, int64_t steps,
                    const std::vector<int64_t>& points) {
  pair.from.eval_sequences = pair.to.eval_sequences = 2;
  SCOPED_TRACE(name_of(pair));
  const TestFolder folder;
  const std::string ckpt = folder.path("ckpt");
  TestRun whole = pair.from;
  whole.steps = steps;
  whole.saving = saving_to(ckpt, points.front());
  const TestOutcome straight = run_test(whole);
  for (const int64_t point : points) {
    TestRun part = pair.from;
    part.steps = point;
    const TestOutcome until = run_test(part);
    // The state is the saved one, whichever rank holds it now.
    TestRun none = resumed(pair.to, ckpt, std::to_string(point));
    none.steps = point;
    const TestOutcome loaded = run_test(none);
    EXPECT_EQ(loaded.result.digest, until.result.digest) << point;
    EXPECT_EQ(loaded.result.state_digest, until.result.state_digest) << point;

    TestRun rest = none;
    rest.steps = steps;
    const TestOutcome end = run_test(rest);
    EXPECT_EQ(end.resumed.step, point);
    EXPECT_EQ(end.resumed.starts, 2);
    ASSERT_EQ(std::ssize(end.steps), steps - point);
    EXPECT_EQ(end.steps.front().step, point + 1);
    EXPECT_EQ(end.result.tokens, straight.result.tokens);
    if (pair.same_bits) {
      EXPECT_EQ(end.result.digest, straight.result.digest) << point;
      EXPECT_EQ(end.result.state_digest, straight.result.state_digest) << point;
      EXPECT_EQ(end.result.eval_loss, straight.result.eval_loss);
      EXPECT_EQ(end.result.final_loss, straight.result.final_loss);
    } else {
      EXPECT_NEAR(end.result.final_loss, straight.result.final_loss,
                  1e-2 * straight.result.final_loss);
    }
  }
  expect_sound(ckpt);
}

// The same number of data-parallel ranks and micro-batches, on other stages and
// plans.
TEST(SavedRuns, S3TwentyStepsAndTwentyMoreAreForty) {
  for (const MeshPair& pair : std::vector<MeshPair>{
           {{.mesh = "dp=2,pp=2"}, {.mesh = "dp=2"}, true},  // 4 to 2
           {{.mesh = "dp=2"}, {.mesh = "dp=2,pp=2"}, true},  // 2 to 4
           {{.mesh = "dp=1"}, {.mesh = "pp=4"}, true},       // 1 to 4
           {{.mesh = "dp=2,pp=4"}, {.mesh = "dp=2"}, true},  // 8 to 2
           {{.mesh = "dp=2,tp=2"},
            {.mesh = "dp=2,tp=2", .strategy = "replicated"},
            true}})
    expect_goes_on(pair, 40, {20});
}

// With one micro-batch on each rank, no ZeRO size changes a bit.
TEST(SavedRuns, S3OtherSizesOfZeroAreTheSameRun) {
  for (MeshPair pair : std::vector<MeshPair>{
           {{.mesh = "dp=4"}, {.mesh = "dp=4", .zero = "zero3"}, true},
           {{.mesh = "dp=4", .zero = "zero3"}, {.mesh = "dp=4"}, true},
           {{.mesh = "dp=4", .zero = "hier:2"},
            {.mesh = "dp=4", .strategy = "layerwise"},
            true}}) {
    for (TestRun* run : {&pair.from, &pair.to}) run->micro_batch = 4;
    expect_goes_on(pair, 16, {8});
  }
}

TEST(SavedRuns, S3OtherRanksGoOnFromTheStateThatWasSaved) {
  for (MeshPair pair : std::vector<MeshPair>{
           {{.mesh = "dp=4"}, {.mesh = "dp=2"}},
           {{.mesh = "dp=2"}, {.mesh = "dp=2,tp=2"}},
           {{.mesh = "dp=4"}, {.mesh = "dp=3"}},
           {{.mesh = "dp=1"}, {.mesh = "dp=4", .zero = "zero3"}},
           {{.mesh = "dp=4,tp=2", .zero = "hier:2"}, {.mesh = "tp=2"}}}) {
    for (TestRun* run : {&pair.from, &pair.to}) {
      run->global_batch = 12;
      run->micro_batch = 1;
    }
    expect_goes_on(pair, 16, {8});
  }
}

// Bases and roots are refreshed every ten steps; resumes come before, at and
// after such a step.
TEST(SavedRuns, S3AcrossRefreshesOfSoapAndShampoo) {
  for (const char* rule : {"soap", "shampoo"})
    expect_goes_on({{.mesh = "dp=2", .rule = rule},
                    {.mesh = "dp=2,pp=2", .rule = rule},
                    true},
                   24, {5, 10, 15});
}

TEST(SavedRuns, S3WithExperts) {
  MeshPair pair{{.mesh = "dp=2,ep=2", .experts = 4},
                {.mesh = "dp=2,ep=2", .experts = 4, .zero = "zero3"},
                true};
  for (TestRun* run : {&pair.from, &pair.to}) run->micro_batch = 4;
  expect_goes_on(pair, 12, {6});
  expect_goes_on({{.mesh = "ep=2", .rule = "adamw", .experts = 4},
                  {.mesh = "tp=2,ep=2", .rule = "adamw", .experts = 4}},
                 12, {6});
}

// A different batch size continues at the same position in the data.
TEST(SavedRuns, APositionInTheDataIsNoNumberOfSteps) {
  const TestFolder folder;
  TestRun run{.mesh = "dp=2", .steps = 4};
  run.saving = saving_to(folder.path("ckpt"), 4);
  run_test(run);
  TestRun more = resumed(run, folder.path("ckpt"), "auto");
  more.steps = 6;
  more.global_batch = 8;
  const TestOutcome end = run_test(more);
  EXPECT_EQ(end.resumed.sequences, 4 * 16);
  EXPECT_EQ(end.result.tokens, (4 * 16 + 2 * 8) * 12);
}

TEST(SavedRuns, C13EverySaveWaitsForTheOneBeforeIt) {
  for (const bool background : {true, false}) {
    const TestFolder folder;
    TestRun run{.mesh = "dp=2", .steps = 6};
    run.saving = saving_to(folder.path("ckpt"), 1, 0, background);
    const TestOutcome all = run_test(run);
    ASSERT_EQ(all.saved.size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(all.saved[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(all.saved[i].failure, "");
      EXPECT_GT(all.saved[i].bytes, 0);
    }
    EXPECT_EQ(all.result.saves, 6);
    EXPECT_EQ(all.result.saved_step, 6);
    EXPECT_THAT(steps_in(folder.path("ckpt")),
                testing::ElementsAre(1, 2, 3, 4, 5, 6));
    expect_sound(folder.path("ckpt"));
    // Memory for the copy is part of what a rank reserves.
    const TestOutcome without = run_test({.mesh = "dp=2", .steps = 1});
    const Plan plan = test_plan(run, test_settings(run));
    EXPECT_EQ(
        all.result.memory_bytes[1] - without.result.memory_bytes[1],
        background ? given_bytes(plan, 1, test_settings(run).runtime) : 0);
  }
}

TEST(SavedRuns, C13AnErrorWhileASaveIsOnItsWayLeavesItWholeOrNotAtAll) {
  for (const int64_t at : {3, 4, 5}) {
    const TestFolder folder;
    TestRun run{.mesh = "dp=2,tp=2", .steps = 9};
    run.saving = saving_to(folder.path("ckpt"), 2);
    run.before_step = [&](int64_t step, int rank, Runtime&) {
      if (step == at && rank == 1) throw UsageError("rank 1 has had enough");
    };
    EXPECT_THAT([&] { run_test(run); },
                testing::ThrowsMessage<UsageError>(
                    testing::HasSubstr("rank 1 has had enough")));
    expect_sound(folder.path("ckpt"));
    for (const int64_t step : steps_in(folder.path("ckpt")))
      EXPECT_LT(step, at);
  }
}

// The signal comes in the step of a save, or between two.
TEST(SavedRuns, C13R12AStopSavesTheStepItIsIn) {
  for (const int64_t at : {2, 3}) {
    const TestFolder folder;
    std::atomic<int> stop = 0;
    TestRun run{.mesh = "dp=2", .steps = 50, .stop = &stop};
    run.saving = saving_to(folder.path("ckpt"), 2, 2);
    run.before_step = [&](int64_t step, int rank, Runtime&) {
      if (step == at && rank == 1) stop = 15;
    };
    const TestOutcome ended = run_test(run);
    EXPECT_EQ(ended.result.stop, 15);
    EXPECT_EQ(ended.result.steps, at);
    EXPECT_EQ(ended.result.saved_step, at);
    EXPECT_EQ(steps_in(folder.path("ckpt")).back(), at);
    expect_sound(folder.path("ckpt"));
  }
}

TEST(SavedRuns, R13AWishSavesAfterTheStepOnce) {
  const TestFolder folder;
  std::atomic<int> wishes = 0;
  TestRun run{.mesh = "dp=4", .steps = 9};
  run.saving = saving_to(folder.path("ckpt"), 100);
  run.saving.now = &wishes;
  run.before_step = [&](int64_t step, int rank, Runtime&) {
    if ((step == 3 && rank == 2) || (step == 6 && rank == 0)) ++wishes;
  };
  run_test(run);
  EXPECT_THAT(steps_in(folder.path("ckpt")), testing::ElementsAre(3, 6, 9));
}

// Puts a value that is not finite in one element of a gradient on one rank.
TestRun poisoned(const TestRun& plain, int bad_rank, int32_t tensor,
                 float value, int64_t from, int64_t until) {
  TestRun run = plain;
  run.before_step = [=](int64_t step, int rank, Runtime& runtime) {
    if (rank == bad_rank && step >= from && step <= until)
      runtime.gradient(tensor)[1] = value;
  };
  return run;
}

TEST(SavedRuns, D4WhatIsNotFiniteAnywhereChangesNothingAnywhere) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const TestRun plain{.mesh = "dp=4", .steps = 2, .eval_sequences = 0};
  const Plan plan = test_plan(plain, test_settings(plain));
  const TestOutcome before = run_test(plain);
  const auto last = static_cast<int32_t>(plan.model.tensors.size()) - 1;
  for (const float value : {std::nanf(""), kInf, -kInf})
    for (const int rank : {0, 1, 2, 3})
      for (const int32_t tensor : {0, last / 2, last}) {
        TestRun run = poisoned(plain, rank, tensor, value, 3, 3);
        run.steps = 3;
        const TestOutcome after = run_test(run);
        EXPECT_EQ(after.result.digest, before.result.digest);
        EXPECT_EQ(after.result.state_digest, before.result.state_digest);
        EXPECT_EQ(after.result.skipped_steps, 1);
        EXPECT_TRUE(after.steps.back().skipped);
        EXPECT_EQ(after.result.nonfinite_rank, rank);
        EXPECT_EQ(after.result.nonfinite_tensor,
                  plan.model.tensors[static_cast<size_t>(tensor)].name);
      }
}

TEST(SavedRuns, D5TenBadStepsInARowLeaveTheLastGoodCheckpoint) {
  const TestFolder folder;
  const std::string ckpt = folder.path("ckpt");
  TestRun plain{.mesh = "dp=2", .steps = 40, .max_skipped = 10};
  plain.saving = saving_to(ckpt, 2, 2);
  const float nan = std::nanf("");
  const TestOutcome run = run_test(poisoned(plain, 1, 0, nan, 6, 100));
  EXPECT_TRUE(run.result.diverged);
  EXPECT_EQ(run.result.steps, 15);
  EXPECT_EQ(run.result.saved_step, 4);
  EXPECT_THAT(steps_in(ckpt), testing::ElementsAre(2, 4));
  expect_sound(ckpt);
  TestRun part = plain;
  part.saving = {};
  part.steps = 4;
  TestRun again = resumed(plain, ckpt, "auto");
  again.steps = 4;
  EXPECT_EQ(run_test(again).result.digest, run_test(part).result.digest);
}

TEST(SavedRuns, D5ASaveWaitsForAGoodStepAndCountersAreKept) {
  const TestFolder folder;
  TestRun plain{.mesh = "dp=2", .steps = 8, .max_skipped = 5};
  plain.saving = saving_to(folder.path("ckpt"), 4);
  const float nan = std::nanf("");
  run_test(poisoned(plain, 0, 1, nan, 3, 5));
  EXPECT_THAT(steps_in(folder.path("ckpt")), testing::ElementsAre(6, 8));
  // A run that ends while steps are being skipped keeps counting.
  std::atomic<int> stop = 0;
  TestRun ends = poisoned(plain, 0, 1, nan, 9, 100);
  ends.resume = LoadRequest{.folder = folder.path("ckpt"), .which = "auto"};
  ends.steps = 40;
  ends.stop = &stop;
  ends.told = [&](const std::string& what) {
    if (what == "step 11") stop = 15;
  };
  const TestOutcome ended = run_test(ends);
  EXPECT_EQ(ended.result.saved_step, ended.result.steps);
  const int64_t in_a_row = ended.result.steps - 8;
  stop = 0;
  ends.told = {};
  const TestOutcome more = run_test(ends);
  EXPECT_EQ(more.resumed.skipped_in_a_row, in_a_row);
  EXPECT_EQ(more.resumed.skipped_steps, 3 + in_a_row);
  EXPECT_EQ(more.resumed.starts, 3);
  EXPECT_TRUE(more.result.diverged);
  EXPECT_EQ(more.result.steps, 8 + 5);
}

TEST(SavedRuns, C5AutoFallsBackAndAStepIsRefused) {
  const TestFolder folder;
  const std::string ckpt = folder.path("ckpt");
  TestRun run{.mesh = "dp=2", .steps = 4};
  run.saving = saving_to(ckpt, 2);
  run_test(run);
  const std::string shard = ckpt + "/step_00000004/rank_00001.safetensors";
  std::string bytes = read_file(shard, 1 << 24, "a shard");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(shard, bytes);
  TestRun more = resumed(run, ckpt, "auto");
  more.steps = 6;
  const TestOutcome end = run_test(more);
  EXPECT_EQ(end.resumed.step, 2);
  EXPECT_THAT(end.loaded->notes,
              testing::Contains(testing::HasSubstr("step_00000004")));
  more.resume->which = "4";
  EXPECT_THROW(run_test(more), DataLost);
}

TEST(SavedRuns, RefusesOtherDataAndFewerSteps) {
  const TestFolder folder;
  const std::string ckpt = folder.path("ckpt");
  TestRun run{.mesh = "dp=2", .steps = 4};
  run.saving = saving_to(ckpt, 2);
  run_test(run);
  TestRun fewer = resumed(run, ckpt, "4");
  fewer.steps = 3;
  EXPECT_THAT([&] { run_test(fewer); },
              testing::ThrowsMessage<UsageError>(
                  testing::AllOf(testing::HasSubstr("has done 4 steps"),
                                 testing::HasSubstr("should have 3"))));
  TrainSettings settings = test_settings(resumed(run, ckpt, "4"));
  settings.data.digest = "1";
  settings.data.description = "other tokens";
  const Plan plan = test_plan(run, settings);
  const TestTokens tokens(3000);
  const Batches batches(tokens, {.length = 12, .seed = 9});
  EXPECT_THAT(
      [&] {
        run_ranks(2, {}, [&](Communicator& world) {
          const auto engine = make_cpu_engine();
          train(settings, plan, batches, world, *engine, nullptr);
        });
      },
      testing::ThrowsMessage<DataLost>(
          testing::AllOf(testing::HasSubstr("test tokens (0)"),
                         testing::HasSubstr("other tokens (1)"))));
}

}  // namespace
}  // namespace canzona::train::saved_runs_test
