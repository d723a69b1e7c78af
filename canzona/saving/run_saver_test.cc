// Saving by all ranks: what is saved, when it appears, and what a failed save
// leaves.
#include "canzona/saving/run_saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/comm/thread/test_gate.h"
#include "canzona/saving/test_saving.h"

namespace canzona::saving::run_saver_test {
namespace {

Plan plan_of(const std::string& mesh, const std::string& rule = "muon") {
  return small_plan(toy_moe(),
                    {.mesh = mesh, .rule = rule, .options = quick(rule)});
}

void save_now(RankSession& rank, int64_t step) {
  rank.saver->save(step, {{"config.json", cat("{\"step\":", step, "}")}});
}

std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const ListedCheckpoint& found : list_checkpoints(Folder::open(folder)))
    steps.push_back(found.step);
  return steps;
}

class BackgroundOrNot : public testing::TestWithParam<bool> {};

// The steps after save() change parameters and states while it is being
// written.
TEST_P(BackgroundOrNot, SavesTheStateAtTheStepThatAskedForIt) {
  const SavingFolder folder;
  const SessionResult until_two =
      run_session({.plan = plan_of("dp=2,tp=2"), .steps = 2}, folder.ckpt());
  Session session{.plan = plan_of("dp=2,tp=2"),
                  .steps = 6,
                  .saves = true,
                  .background = GetParam()};
  session.at_step[2] = [](RankSession& rank) { save_now(rank, 2); };
  const SessionResult whole = run_session(session, folder.ckpt());
  ASSERT_EQ(whole.saved.size(), 1U);
  EXPECT_EQ(whole.saved[0].step, 2);
  EXPECT_EQ(whole.saved[0].failure, "");
  EXPECT_GT(whole.saved[0].bytes, 0);

  const SessionResult loaded =
      run_session({.plan = plan_of("dp=2,tp=2"), .load = "2"}, folder.ckpt());
  EXPECT_EQ(loaded.parameters, until_two.parameters);
  EXPECT_EQ(loaded.states, until_two.states);
  EXPECT_EQ(loaded.steps_done, 2);
  EXPECT_EQ(loaded.loaded.step, 2);
  EXPECT_EQ(loaded.loaded.side_files.at("config.json"), "{\"step\":2}");

  const SessionResult rest = run_session(
      {.plan = plan_of("dp=2,tp=2"), .steps = 4, .first_step = 3, .load = "2"},
      folder.ckpt());
  EXPECT_EQ(rest.parameters, whole.parameters);
  EXPECT_EQ(rest.states, whole.states);
}

TEST_P(BackgroundOrNot, LeavesACheckpointThatVerifiesAndNothingElse) {
  const SavingFolder folder;
  Session session{.plan = plan_of("dp=3"),
                  .steps = 1,
                  .saves = true,
                  .background = GetParam()};
  session.at_step[1] = [](RankSession& rank) { save_now(rank, 1); };
  run_session(session, folder.ckpt());
  const CheckpointReader reader =
      open_checkpoint(folder.ckpt() + "/step_00000001");
  EXPECT_TRUE(reader.verify().empty());
  EXPECT_EQ(reader.manifest().world, 3);
  EXPECT_EQ(reader.manifest().plan_digest, session.plan.digest);
  for (const auto& entry : std::filesystem::directory_iterator(folder.ckpt()))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos)
        << entry.path();
}

// C13: the next save waits for the one in flight; both are committed.
TEST_P(BackgroundOrNot, C13WaitsForASaveThatIsOnItsWay) {
  const SavingFolder folder;
  Session session{.plan = plan_of("dp=2"),
                  .steps = 4,
                  .saves = true,
                  .background = GetParam(),
                  .keep_last = 2};
  for (int64_t step = 1; step <= 4; ++step)
    session.at_step[step] = [step](RankSession& rank) { save_now(rank, step); };
  const SessionResult result = run_session(session, folder.ckpt());
  ASSERT_EQ(result.saved.size(), 4U);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.saved[static_cast<size_t>(i)].step, i + 1);
    EXPECT_EQ(result.saved[static_cast<size_t>(i)].failure, "");
  }
  EXPECT_EQ(steps_in(folder.ckpt()), (std::vector<int64_t>{3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Ways, BackgroundOrNot, testing::Bool(),
                         [](const auto& background) {
                           return background.param ? "Background" : "AtOnce";
                         });

// C13: a saver that is destroyed early leaves the save complete or not at all.
TEST(RunSaver, C13LeavesASaveThatIsOnItsWayWholeOrNotAtAll) {
  const SavingFolder folder;
  const Plan plan = plan_of("dp=2");
  run_ranks(2, {}, [&](Communicator& world) {
    const auto engine = make_engine("cpu");
    Runtime runtime(plan, world, *engine, {});
    set_initial_parameters(runtime);
    {
      RunSaver saver(runtime, world, {.folder = folder.ckpt(), .owner = "a"});
      saver.save(7, {});
    }
    world.barrier();
  });
  for (const int64_t step : steps_in(folder.ckpt()))
    EXPECT_TRUE(open_checkpoint(cat(folder.ckpt(), "/", checkpoint_name(step)))
                    .verify()
                    .empty());
  Session session{.plan = plan, .saves = true};
  session.at_step[0] = [](RankSession& rank) { save_now(rank, 9); };
  run_session(session, folder.ckpt());
  EXPECT_EQ(steps_in(folder.ckpt()).back(), 9);
}

// No step has to end before a checkpoint appears (N2).
TEST(RunSaver, CommitsWithoutBeingAsked) {
  const SavingFolder folder;
  Session session{.plan = plan_of("dp=2,tp=2"), .steps = 1, .saves = true};
  session.at_step[1] = [&](RankSession& rank) {
    save_now(rank, 1);
    while (!has_checkpoint(folder.ckpt()))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  run_session(session, folder.ckpt());
  EXPECT_EQ(steps_in(folder.ckpt()), std::vector<int64_t>{1});
}

TEST(RunSaver, GoesOnAfterASaveThatFails) {
  const SavingFolder folder;
  Session session{.plan = plan_of("dp=2"), .steps = 3, .saves = true};
  session.at_step[1] = [&](RankSession& rank) {
    // Ranks find the pending folder by the store's path.
    if (rank.world.rank() == 0)
      std::filesystem::rename(folder.ckpt(), folder.ckpt() + ".away");
    rank.world.barrier();
    save_now(rank, 1);
    const std::optional<SavedStep> failed = rank.saver->finish();
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->step, 1);
    EXPECT_NE(failed->failure, "");
    if (rank.world.rank() == 0)
      std::filesystem::rename(folder.ckpt() + ".away", folder.ckpt());
    rank.world.barrier();
  };
  session.at_step[3] = [](RankSession& rank) { save_now(rank, 3); };
  const SessionResult result = run_session(session, folder.ckpt());
  ASSERT_EQ(result.saved.size(), 1U);
  EXPECT_EQ(result.saved[0].step, 3);
  EXPECT_EQ(result.saved[0].failure, "");
  EXPECT_EQ(steps_in(folder.ckpt()), std::vector<int64_t>{3});
  EXPECT_TRUE(
      open_checkpoint(folder.ckpt() + "/step_00000003").verify().empty());
}

// Gradients may be finite although the resulting weights are not.
TEST(RunSaver, KeepsTheLastGoodOneWhereWeightsAreNotFinite) {
  const SavingFolder folder;
  Session session{
      .plan = plan_of("dp=2"), .steps = 2, .saves = true, .keep_last = 1};
  session.at_step[1] = [](RankSession& rank) { save_now(rank, 1); };
  session.at_step[2] = [](RankSession& rank) {
    float* weight = nullptr;
    rank.runtime.for_each_state([&](const RankState& state) {
      if (state.given && state.state.empty()) weight = &state.values.back();
    });
    const float before = *weight;
    if (rank.world.rank() == 1)
      *weight = std::numeric_limits<float>::infinity();
    save_now(rank, 2);  // copies the state
    *weight = before;
  };
  const SessionResult result = run_session(session, folder.ckpt());
  ASSERT_EQ(result.saved.size(), 2U);
  EXPECT_EQ(result.saved[0].failure, "");
  EXPECT_NE(result.saved[1].failure.find("not finite"), std::string::npos)
      << result.saved[1].failure;
  EXPECT_FALSE(result.saved[0].not_finite);
  EXPECT_TRUE(result.saved[1].not_finite);
  EXPECT_EQ(steps_in(folder.ckpt()), std::vector<int64_t>{1});
}

// A save of three ranks, all of which wait for it.
struct WaitedSave {
  TestGate gate{};
  std::chrono::milliseconds deadline = std::chrono::minutes(1);
  std::optional<SavedStep> saved = {};  // rank 0's

  void run(const std::string& folder) {
    const Plan plan = plan_of("dp=3");
    RunOptions options;
    options.communicator.deadline = deadline;
    options.world.gate = &gate;
    run_ranks(3, options, [&](Communicator& world) {
      const auto engine = make_engine("cpu");
      Runtime runtime(plan, world, *engine, {});
      set_initial_parameters(runtime);
      RunSaver saver(
          runtime, world,
          {.folder = folder, .owner = "a test", .background = false});
      saver.save(1, {});
      const std::optional<SavedStep> ended = saver.finish();
      if (world.rank() == 0) saved = ended;
    });
  }
};

constexpr std::string_view kFilesAreWritten = "checkpoint written";
constexpr std::string_view kBeat = "waiting for a save";

// However long a disk takes, the others wait for it and know that the rank is
// alive.
TEST(RunSaver, R8WaitsForARankWhoseDiskIsSlow) {
  const SavingFolder folder;
  WaitedSave save;
  std::atomic<int> beats = 0;
  save.gate.hold([&](const TestGate::Passage& passage) {
    if (passage.label == kBeat && passage.world_rank == 0) ++beats;
    return passage.label == kFilesAreWritten && passage.world_rank == 1;
  });
  std::thread disk([&] {
    // The limit is for a saver without heartbeats.
    for (int i = 0; i < 3000 && beats < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    save.gate.release();
  });
  save.run(folder.ckpt());
  disk.join();
  EXPECT_GE(beats, 3);
  ASSERT_TRUE(save.saved);
  EXPECT_EQ(save.saved->failure, "");
  EXPECT_EQ(steps_in(folder.ckpt()), std::vector<int64_t>{1});
}

// Nobody does a step meanwhile in which it could be noticed.
TEST(RunSaver, R7NamesARankThatStopsWhileItWrites) {
  const SavingFolder folder;
  WaitedSave save{.deadline = std::chrono::seconds(2)};
  std::atomic<bool> writes = false;
  save.gate.hold([&](const TestGate::Passage& passage) {
    if (passage.world_rank != 1) return false;
    if (passage.label == kFilesAreWritten) writes = true;
    return passage.label == kFilesAreWritten || passage.label == kBeat;
  });
  std::thread limit([&] {  // for a saver that would wait for days
    for (int i = 0; i < 3000 && !save.gate.has_ended(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    save.gate.release();
  });
  try {
    save.run(folder.ckpt());
    ADD_FAILURE() << "no error";
  } catch (const PeerLost& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 did not"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(kBeat), std::string::npos)
        << error.what();
  }
  limit.join();
  EXPECT_TRUE(writes);
  EXPECT_TRUE(steps_in(folder.ckpt()).empty());
}

TEST(RunSaver, C12RefusesAFolderThatAnotherRunWritesTo) {
  const SavingFolder folder;
  const CheckpointStore other(folder.ckpt(), "process 4711");
  try {
    run_session({.plan = plan_of("dp=2"), .saves = true}, folder.ckpt());
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("4711"), std::string::npos)
        << error.what();
  }
}

// A saver reserves the predicted memory.
TEST(RunSaver, ReservesWhatAPlanSaysThatARankGives) {
  for (const std::string mesh : {"dp=1", "dp=3", "dp=2,tp=2", "dp=2,ep=2"})
    for (const std::string zero : {"zero1", "zero3"})
      for (const std::string rule : {"muon", "soap"}) {
        SCOPED_TRACE(cat(mesh, " ", zero, " ", rule));
        const SavingFolder folder;
        Session session{
            .plan = small_plan(toy_moe(),
                               {.mesh = mesh, .rule = rule, .zero = zero}),
            .saves = true};
        session.at_step[0] = [&](RankSession& rank) {
          EXPECT_EQ(rank.saver->staging_bytes(),
                    given_bytes(session.plan, rank.world.rank(), {}));
        };
        run_session(session, folder.ckpt());
      }
}

}  // namespace
}  // namespace canzona::saving::run_saver_test
