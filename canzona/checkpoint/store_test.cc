#include "canzona/checkpoint/store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/test_faults.h"
#include "canzona/checkpoint/test_sample.h"

namespace canzona::checkpoint::store_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class Store : public FolderTest {
 protected:
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const ListedCheckpoint& c :
         list_checkpoints(Folder::open(path("ckpt"))))
      out.push_back(c.step);
    return out;
  }
  std::vector<int64_t> order() const {
    std::vector<int64_t> out;
    for (const ListedCheckpoint& c : resume_order(Folder::open(path("ckpt"))))
      out.push_back(c.step);
    return out;
  }
  void expect_step(int64_t step) const {
    expect_sample(open_checkpoint(path("ckpt/" + checkpoint_name(step))), step);
  }
};

TEST_F(Store, NamesOfSteps) {
  EXPECT_EQ(checkpoint_name(1000), "step_00001000");
  EXPECT_EQ(checkpoint_name(1234567890), "step_1234567890");
  EXPECT_EQ(step_of_name("step_00001000"), 1000);
  EXPECT_EQ(step_of_name("step_1234567890"), 1234567890);
  for (const char* name :
       {"step_1000", "step_0001234567890", "step_", "step_0000100a",
        "step_00001000.tmp-1", "Step_00001000", "step_00001000/",
        "step_9999999999999999", "step_-0001000", ""})
    EXPECT_FALSE(step_of_name(name)) << name;
}

TEST_F(Store, NamesThatAreTheStoresOwn) {
  for (const char* name :
       {"latest", "latest.tmp-1-2-3-0", "step_00000100", "step_00000100.tmp-1",
        "step_00000100.old-5", "step_00000100.left-4711-1-2-0"})
    EXPECT_TRUE(is_name_of_store(name)) << name;
  for (const char* name :
       {"latest.mine", "step_00000100.bak", "step_00000100.old",
        "step_00000100.old-mine", "step_00000100.left-", "step_100.tmp-1",
        "step_00000100.mine.tmp-1", "notes.tmp-1", "canzona.lock", ""})
    EXPECT_FALSE(is_name_of_store(name)) << name;
  EXPECT_TRUE(is_pending_name("step_00000100.tmp-1"));
  EXPECT_FALSE(is_pending_name("step_00000100.left-1"));
}

TEST_F(Store, AFolderHoldsCheckpointsAndTheLatestName) {
  {
    CheckpointStore store(path("ckpt"), "test");
    save_sample(store, 100);
    save_sample(store, 200, 3);
    EXPECT_EQ(FileLock::holder(path("ckpt/canzona.lock")), "test");
  }
  EXPECT_THAT(names_in(path("ckpt")),
              ElementsAre("latest", "step_00000100", "step_00000200"));
  EXPECT_THAT(names_in(path("ckpt/step_00000100")),
              ElementsAre("config.json", "manifest.json",
                          "rank_00000.safetensors", "rank_00001.safetensors"));
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000200\n");
  expect_step(100);
  expect_step(200);
}

TEST_F(Store, WithoutACommitNothingStays) {
  CheckpointStore store(path("ckpt"), "test");
  save_sample(store, 100);
  {
    PendingCheckpoint pending = store.begin(200);
    write_shard(pending.folder(), {200, 0, 1}, sample_shard(200, 0, 1).sources);
    EXPECT_THAT(steps(), ElementsAre(100));
  }
  EXPECT_THAT(names_in(path("ckpt")),
              ElementsAre("canzona.lock", "latest", "step_00000100"));
}

TEST_F(Store, RecordsThatAreNoWholeAreRefused) {
  CheckpointStore store(path("ckpt"), "test");
  const auto commit = [&](int64_t ranks, bool twice, int64_t step) {
    PendingCheckpoint pending = store.begin(200);
    std::vector<std::string> records;
    for (int64_t rank = 0; rank < ranks; ++rank)
      records.push_back(write_shard(pending.folder(), {step, rank, 2},
                                    sample_shard(200, rank, 2).sources));
    if (twice) records.push_back(records[0]);
    pending.commit(records, "");
  };
  EXPECT_THROW(commit(1, false, 200), UsageError);
  EXPECT_THROW(commit(2, true, 200), UsageError);
  EXPECT_THROW(commit(2, false, 201), UsageError);
  EXPECT_THAT(steps(), IsEmpty());
  commit(2, false, 200);
  EXPECT_THAT(steps(), ElementsAre(200));
  PendingCheckpoint pending = store.begin(300);
  EXPECT_THROW(pending.add_side_file("../x.json", ""), UsageError);
  EXPECT_THROW(pending.add_side_file("manifest.json", ""), UsageError);
  EXPECT_THROW(open_pending(path("ckpt"), "step_00000200"), UsageError);
  EXPECT_THROW(open_pending(path("ckpt"), "../step_00000200.tmp-1"),
               UsageError);
}

// Later checkpoints do not belong to a run that resumes from step 100.
TEST_F(Store, GoingBackSetsLaterStepsAside) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200, 300}) save_sample(store, step);
  EXPECT_THAT(store.go_back_to(300), IsEmpty());
  EXPECT_THAT(store.go_back_to(100), ElementsAre(200, 300));
  EXPECT_THAT(steps(), ElementsAre(100));
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000100\n");
  EXPECT_THAT(store.go_back_to(100), IsEmpty());
  const std::vector<std::string> names = names_in(path("ckpt"));
  ASSERT_EQ(names.size(), 5U);
  EXPECT_THAT(names[3], HasSubstr("step_00000200.left-"));
  expect_sample(open_checkpoint(path("ckpt/" + names[4])), 300);
  const std::vector<ListedCheckpoint> aside = list_set_aside(store.folder());
  ASSERT_EQ(aside.size(), 2U);
  EXPECT_EQ(aside[0].name, names[3]);
  EXPECT_EQ(aside[0].step, 200);
  EXPECT_EQ(aside[1].step, 300);
  // They stay until as many as are kept verify, beside a new one of the same
  // step.
  EXPECT_THAT(store.prune(2).removed, IsEmpty());
  save_sample(store, 200);
  EXPECT_THAT(store.go_back_to(100), ElementsAre(200));
  save_sample(store, 150);
  EXPECT_THAT(store.prune_dry(2).removed, SizeIs(3));
  EXPECT_THAT(store.prune(2).removed, SizeIs(3));
  EXPECT_THAT(
      names_in(path("ckpt")),
      ElementsAre("canzona.lock", "latest", "step_00000100", "step_00000150"));
  expect_step(100);
  expect_step(150);
}

TEST_F(Store, AStepIsReplaced) {
  CheckpointStore store(path("ckpt"), "test");
  save_sample(store, 100, 4);
  folder_.write("ckpt/step_00000100/rank_00000.safetensors", "damage");
  save_sample(store, 100, 1);
  expect_step(100);
  EXPECT_THAT(
      names_in(path("ckpt/step_00000100")),
      ElementsAre("config.json", "manifest.json", "rank_00000.safetensors"));
  EXPECT_THAT(names_in(path("ckpt")),
              ElementsAre("canzona.lock", "latest", "step_00000100"));
}

TEST_F(Store, ResumeBeginsWithTheLatest) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200, 300, 400, 250}) save_sample(store, step);
  EXPECT_THAT(order(), ElementsAre(250, 200, 100, 400, 300));
  for (const char* text : {"", "step_00000999\n", "../step_00000300\n",
                           "step_00000250\nsomething else\n",
                           "nonsense that is far too long to be a name of any "
                           "checkpoint there ever was"}) {
    folder_.write("ckpt/latest", text);
    EXPECT_THAT(order(), ElementsAre(400, 300, 250, 200, 100)) << text;
  }
  fs::remove(path("ckpt/latest"));
  fs::create_directory(path("ckpt/latest"));
  EXPECT_THAT(order(), ElementsAre(400, 300, 250, 200, 100));
}

// A run was killed between the two renames of a commit: step 300 is there and
// complete, but `latest` says 200.
TEST_F(Store, C1_AStepThatWasNotNamedYetIsTheNewest) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200, 300}) save_sample(store, step);
  folder_.write("ckpt/latest", "step_00000200\n");
  EXPECT_THAT(order(), ElementsAre(300, 200, 100));
  EXPECT_THAT(store.go_back_to(300), IsEmpty());
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000300\n");
  folder_.write("ckpt/latest", "step_00000200\n");
  const PruneReport report = store.prune(1);
  EXPECT_THAT(report.kept, ElementsAre("step_00000300"));
  EXPECT_THAT(report.removed, ElementsAre("step_00000200", "step_00000100"));
  EXPECT_THAT(steps(), ElementsAre(300));
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000300\n");
  expect_step(300);
}

// A run had gone back to step 100 and was killed before later steps were set
// aside.
TEST_F(Store, C1_StepsThatARunHasLeftAreNotTheNewest) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200, 300}) save_sample(store, step);
  folder_.write("ckpt/latest", "step_00000100\nlater steps are left\n");
  EXPECT_THAT(order(), ElementsAre(100, 300, 200));
  EXPECT_THAT(store.prune_dry(1).kept, ElementsAre("step_00000100"));
  EXPECT_THAT(store.go_back_to(100), ElementsAre(200, 300));
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000100\n");
  save_sample(store, 200);
  folder_.write("ckpt/latest", "step_00000100\n");
  EXPECT_THAT(order(), ElementsAre(200, 100));
}

TEST_F(Store, C1_ARunThatHasGoneBackLeavesNothingThatComesLater) {
  {
    CheckpointStore store(path("ckpt"), "test");
    save_sample(store, 100);
  }
  folder_.write("ckpt/latest", "step_00000100\nlater steps are left\n");
  const CheckpointStore store(path("ckpt"), "test");
  EXPECT_EQ(bytes_of("ckpt/latest"), "step_00000100\n");
}

// A killed process leaves partial folders, and empty ones under final names,
// too.
TEST_F(Store, LeftoversAreNeverLookedAtAndRemovedAtTheNextStart) {
  {
    CheckpointStore store(path("ckpt"), "test");
    save_sample(store, 100);
  }
  folder_.write("ckpt/step_00000200.tmp-1-2/rank_00000.safetensors", "half");
  folder_.write("ckpt/latest.tmp-77", "step_");
  fs::create_symlink("/etc", path("ckpt/step_00000300.tmp-9"));
  fs::create_directory(path("ckpt/step_00000400"));
  folder_.write("ckpt/notes.tmp-1", "a user's");
  folder_.write("ckpt/step_00000500.old-mine/notes", "a user's");
  std::vector<std::string> notes;
  EXPECT_EQ(
      newest_verified(Folder::open(path("ckpt")), 1, notes).manifest().step,
      100);
  const CheckpointStore store(path("ckpt"), "test");
  EXPECT_THAT(
      names_in(path("ckpt")),
      ElementsAre("canzona.lock", "latest", "notes.tmp-1", "step_00000100",
                  "step_00000400", "step_00000500.old-mine"));
  EXPECT_TRUE(fs::exists("/etc"));
}

TEST_F(Store, AReplacedStepComesBackIfItsSuccessorNeverCame) {
  {
    CheckpointStore store(path("ckpt"), "test");
    save_sample(store, 100);
  }
  fs::rename(path("ckpt/step_00000100"), path("ckpt/step_00000100.old-5"));
  const CheckpointStore store(path("ckpt"), "test");
  expect_step(100);
}

TEST_F(Store, C3_SpaceIsAskedForBefore) {
  FaultyFileSystem faulty(0, {});
  CheckpointStore store(path("ckpt"), "test", faulty);
  faulty.set_free_bytes(1000);
  store.require_space(1000);
  try {
    store.require_space(1001);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("1001 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("1000 bytes"));
  }
  store.require_space(333, 3);
  try {
    store.require_space(334, 3);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 checkpoints (those to be kept"));
    EXPECT_THAT(error.what(), HasSubstr("of 334 B each need 1002 B"));
  }
  const SampleShard shard = sample_shard(1, 0, 1);
  PendingCheckpoint pending = store.begin(1);
  write_shard(pending.folder(), {1, 0, 1}, shard.sources);
  EXPECT_EQ(shard_bytes(shard.sources),
            static_cast<int64_t>(fs::file_size(pending.folder().path() +
                                               "/rank_00000.safetensors")));
}

TEST_F(Store, C10_PruningKeepsEnoughThatVerify) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200, 300, 400}) save_sample(store, step);
  folder_.write("ckpt/step_00000300/rank_00001.safetensors", "damage");
  PruneReport report = store.prune(2);
  EXPECT_THAT(report.kept, ElementsAre("step_00000400", "step_00000200"));
  EXPECT_THAT(report.damaged, ElementsAre("step_00000300"));
  EXPECT_THAT(report.removed, ElementsAre("step_00000100"));
  EXPECT_THAT(steps(), ElementsAre(200, 300, 400));
  // There are fewer than keep_last, so none is removed.
  report = store.prune(3);
  EXPECT_THAT(report.removed, IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(200, 300, 400));
  EXPECT_THROW(store.prune(0), UsageError);
  EXPECT_THAT(store.prune_dry(1).removed,
              ElementsAre("step_00000300", "step_00000200"));
  EXPECT_THAT(steps(), ElementsAre(200, 300, 400));
}

// A store notices when a checkpoint that it committed loses a file.
TEST_F(Store, C10_WhatWasCommittedIsNotTrustedForEver) {
  CheckpointStore store(path("ckpt"), "test");
  for (const int64_t step : {100, 200}) save_sample(store, step);
  fs::remove(path("ckpt/step_00000200/rank_00001.safetensors"));
  EXPECT_THAT(store.prune(1).removed, IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(100, 200));
}

TEST_F(Store, C11_AFolderThatCannotBeWritten) {
  EXPECT_THROW(CheckpointStore(path("no/ckpt"), "test"), UsageError);
  folder_.write("file", "");
  EXPECT_THROW(CheckpointStore(path("file"), "test"), UsageError);
  fs::create_directory(path("locked"));
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path("locked").c_str(), 0555), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Root may write anywhere; user nobody may not.
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(9);
    int refused = 0;
    for (const char* name : {"locked", "locked/ckpt"}) try {
        const CheckpointStore store(path(name), "test");
      } catch (const UsageError&) {
        ++refused;
      }
    ::_exit(refused);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(Store, C12_OneWriterAtATime) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointStore store(path("ckpt"), "process 4711 on node7");
    (void)!::write(ready[1], "y", 1);
    while (true) ::pause();
  }
  char held = 0;
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  try {
    const CheckpointStore second(path("ckpt"), "second");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("process 4711 on node7"));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(FileLock::holder(path("ckpt/canzona.lock")),
            "process 4711 on node7");
  CheckpointStore third(path("ckpt"), "third");
  save_sample(third, 100);
  expect_step(100);
}

}  // namespace
}  // namespace canzona::checkpoint::store_test
