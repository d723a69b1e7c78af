// Every file system call of a save or a prune fails in turn, or is the last
// thing that the process does.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/test_faults.h"
#include "canzona/checkpoint/test_sample.h"

namespace canzona::checkpoint::store_faults_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class StoreFaults : public FolderTest {
 protected:
  // Makes a folder with these steps committed. Each is saved once and then
  // copied.
  std::string fresh_store(const std::vector<int64_t>& steps = {100}) {
    const std::string model = path("model");
    if (!fs::exists(model)) {
      FaultyFileSystem quick(0, {});
      CheckpointStore open(model, "before", quick);
      for (const int64_t step : steps) save_sample(open, step, 1);
    }
    const std::string store = path("ckpt" + std::to_string(next_++));
    fs::copy(model, store, fs::copy_options::recursive);
    return store;
  }
  // Expects exactly what was there before, possibly with all of step 200; and
  // the next start must clean up and be able to save.
  int64_t expect_old_or_new(const std::string& path) {
    std::vector<std::string> notes;
    const int64_t step =
        newest_verified(Folder::open(path), 1, notes).manifest().step;
    EXPECT_THAT(notes, IsEmpty());
    expect_sample(open_checkpoint(path + "/step_00000100"), 100);
    CheckpointStore store(path, "after");
    const std::vector<std::string> names = names_in(path);
    if (fs::exists(path + "/step_00000200")) {
      EXPECT_THAT(names, ElementsAre("canzona.lock", "latest", "step_00000100",
                                     "step_00000200"));
      // It is complete as soon as it is there, whatever `latest` says.
      EXPECT_EQ(step, 200);
      expect_sample(open_checkpoint(path + "/step_00000200"), 200);
    } else {
      EXPECT_EQ(step, 100);
      EXPECT_THAT(names,
                  ElementsAre("canzona.lock", "latest", "step_00000100"));
    }
    return step;
  }

  int next_ = 0;
};

enum class Ended { kDone, kRefused };

Ended save_through(FileSystem& system, const std::string& path) {
  try {
    CheckpointStore store(path, "test", system);
    save_sample(store, 200, 2);
    return Ended::kDone;
  } catch (const StorageError&) {
  } catch (const UsageError&) {
  } catch (const DataLost&) {
  }
  return Ended::kRefused;
}

TEST_F(StoreFaults, C2_EveryCallFailsInTurn) {
  for (const int code : {ENOSPC, EIO, EDQUOT, EACCES}) {
    int64_t refused = 0;
    int64_t k = 1;
    for (;; ++k) {
      const std::string store = fresh_store();
      FaultyFileSystem faulty(k, Fault::error(code));
      const Ended ended = save_through(faulty, store);
      if (faulty.calls() < k) {
        EXPECT_EQ(ended, Ended::kDone);
        break;
      }
      refused += ended == Ended::kRefused ? 1 : 0;
      const int64_t step = expect_old_or_new(store);
      EXPECT_TRUE(ended == Ended::kRefused || step == 200) << "call " << k;
      ASSERT_FALSE(HasFailure()) << "call " << k << ", errno " << code;
      fs::remove_all(store);
    }
    EXPECT_GT(k, 40);
    EXPECT_GT(refused, 20);
  }
}

// A failed disk stays failed: cleaning up fails as well.
TEST_F(StoreFaults, C2_EveryLaterCallFailsToo) {
  for (int64_t k = 1;; ++k) {
    const std::string store = fresh_store();
    FaultyFileSystem faulty(
        k, {.kind = Fault::kError, .code = EIO, .for_ever = true});
    save_through(faulty, store);
    if (faulty.calls() < k) break;
    expect_old_or_new(store);
    ASSERT_FALSE(HasFailure()) << "call " << k;
    fs::remove_all(store);
  }
}

TEST_F(StoreFaults, C2_InterruptedCallsAndShortWritesAreMadeGood) {
  for (const Fault fault :
       {Fault::error(EINTR), Fault{.kind = Fault::kShortWrite},
        Fault{.kind = Fault::kShortWrite, .for_ever = true}})
    for (int64_t k = 1;; ++k) {
      const std::string store = fresh_store();
      FaultyFileSystem faulty(k, fault);
      ASSERT_EQ(save_through(faulty, store), Ended::kDone) << "call " << k;
      EXPECT_EQ(expect_old_or_new(store), 200);
      ASSERT_FALSE(HasFailure()) << "call " << k;
      fs::remove_all(store);
      if (faulty.calls() < k || (fault.for_ever && k > 3)) break;
    }
}

// The disk fills up in the middle of a shard, and the preflight check was
// skipped.
TEST_F(StoreFaults, C3_AFullDiskLeavesWhatWasThere) {
  const std::string store = fresh_store();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    constexpr rlim_t kRoom = 1 << 20;
    const rlimit limit{kRoom, kRoom};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      CheckpointStore open(store, "child");
      PendingCheckpoint pending = open.begin(200);
      const std::vector<std::byte> bytes(2 * kRoom);
      const int64_t count = std::ssize(bytes);
      write_shard(pending.folder(), {.step = 200},
                  {{{"w", DType::kU8, {count}}, whole_box({count}), bytes}});
    } catch (const StorageError&) {
      status = 0;
    }
    ::_exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(expect_old_or_new(store), 100);
}

// After a failed sync the contents of a file are unknown, so a second sync
// would prove nothing.
TEST_F(StoreFaults, C4_AFailedSyncIsNotTriedAgain) {
  int64_t k = 1;
  for (;; ++k) {
    const std::string store = fresh_store();
    FaultyFileSystem faulty(
        k, {.kind = Fault::kError, .code = EIO, .syncs_only = true});
    const Ended ended = save_through(faulty, store);
    if (faulty.calls() < k) break;
    EXPECT_EQ(ended, Ended::kRefused);
    EXPECT_EQ(faulty.calls(), k);
    expect_old_or_new(store);
    ASSERT_FALSE(HasFailure()) << "sync " << k;
  }
  // Two shards, config.json, manifest, its folder, the store, latest, the
  // store.
  EXPECT_EQ(k - 1, 8);
}

// Runs `work` in a process that is killed at call k; returns false if it
// finished.
template <class Work>
bool is_killed(int64_t k, bool after, const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyFileSystem faulty(k, {.kind = Fault::kKill, .after = after});
    work(faulty);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST_F(StoreFaults, C1_KilledAtEveryCallOfASave) {
  for (const bool after : {false, true}) {
    int64_t k = 1;
    int64_t last = 100;
    for (;; ++k) {
      const std::string store = fresh_store();
      if (!is_killed(k, after,
                     [&](FileSystem& system) { save_through(system, store); }))
        break;
      const int64_t step = expect_old_or_new(store);
      ASSERT_FALSE(HasFailure()) << "call " << k;
      // Once it is there, it stays.
      EXPECT_THAT(step, Ge(last)) << "call " << k;
      last = step;
      fs::remove_all(store);
    }
    EXPECT_GT(k, 40);
    EXPECT_EQ(last, 200);
  }
}

TEST_F(StoreFaults, C1_KilledWhileAStepIsReplaced) {
  for (int64_t k = 1;; ++k) {
    const std::string store = fresh_store({100, 200});
    if (!is_killed(k, false,
                   [&](FileSystem& system) { save_through(system, store); }))
      break;
    const CheckpointStore open(store, "after");
    expect_sample(open_checkpoint(store + "/step_00000200"), 200);
    ASSERT_FALSE(HasFailure()) << "call " << k;
    fs::remove_all(store);
  }
}

// Whatever call is the last, the run resumes from where it was or from where it
// went back to, and nothing is lost.
TEST_F(StoreFaults, C1_KilledWhileARunGoesBack) {
  int64_t k = 1;
  for (int64_t last = 300;; ++k) {
    const std::string store = fresh_store({100, 200, 300});
    const bool killed = is_killed(k, false, [&](FileSystem& system) {
      CheckpointStore(store, "test", system).go_back_to(100);
    });
    CheckpointStore open(store, "after");
    const int64_t first = resume_order(open.folder()).front().step;
    EXPECT_TRUE(first == last || (last == 300 && first == 100)) << first;
    last = first;
    std::vector<int64_t> there;
    for (const std::string& name : names_in(store))
      if (name.starts_with("step_"))
        there.push_back(open_checkpoint(store + "/" + name).manifest().step);
    EXPECT_THAT(there, ElementsAre(100, 200, 300));
    open.go_back_to(100);
    EXPECT_THAT(list_checkpoints(open.folder()), SizeIs(1U));
    ASSERT_FALSE(HasFailure()) << "call " << k;
    fs::remove_all(store);
    if (!killed) break;
  }
  EXPECT_GT(k, 5);
}

TEST_F(StoreFaults, C10_KilledAtEveryCallOfAPrune) {
  int64_t k = 1;
  for (;; ++k) {
    const std::string store = fresh_store({100, 200, 300, 400});
    folder_.write(
        fs::path(store).filename().string() + "/step_00000400/config.json",
        "damage");
    const bool killed = is_killed(k, false, [&](FileSystem& system) {
      CheckpointStore open(store, "test", system);
      open.prune(2);
    });
    for (const int64_t step : {200, 300})
      expect_sample(open_checkpoint(store + "/" + checkpoint_name(step)), step);
    const CheckpointStore open(store, "after");
    EXPECT_THAT(list_checkpoints(open.folder()), SizeIs(Ge(3u)));
    ASSERT_FALSE(HasFailure()) << "call " << k;
    fs::remove_all(store);
    if (!killed) break;
  }
  EXPECT_GT(k, 5);
}

}  // namespace
}  // namespace canzona::checkpoint::store_faults_test
