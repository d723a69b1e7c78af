// The folder that holds a run's checkpoints, and how checkpoints are added to
// it.
//
//   CheckpointStore store("runs/one/ckpt", "process 4711 on node7");  // rank 0
//   store.require_space(bytes);
//   PendingCheckpoint pending = store.begin(step);
//   // pending.folder_name() goes to all ranks, each of which writes its shard:
//   record = write_shard(open_pending(path, folder_name), place, sources);
//   // they vote; records go to rank 0, which, if all agreed:
//   pending.add_side_file("config.json", text);
//   pending.commit(records, plan_digest);
//   store.prune(keep_last);
//
// A checkpoint appears by one rename, complete or not at all; `latest` names it
// only after that, and only then are older ones removed. A pending checkpoint
// that is not committed is removed by its destructor; one that a killed process
// left is removed when a store is next opened. The store locks its folder while
// it lives. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/manifest.h"

namespace canzona::checkpoint {

inline constexpr const char* kLatestFile = "latest";
inline constexpr const char* kStoreLock = "canzona.lock";

// The largest step that a checkpoint can have.
inline constexpr int64_t kMaxStep = 999'999'999'999'999;

// "step_00001000"
std::string checkpoint_name(int64_t step);
// Returns nothing for any other name.
std::optional<int64_t> step_of_name(std::string_view name);

// True for every name that a store gives: "latest", "step_00000100", and these
// with a mark and an id while they are written, replaced or set aside
// ("step_00000100.left-4711-…"). Any other file in its folder belongs to
// somebody else.
bool is_name_of_store(std::string_view name);
// True for the name of a pending checkpoint: "step_00000100.tmp-4711-…".
bool is_pending_name(std::string_view name);

struct ListedCheckpoint {
  std::string name;
  int64_t step = 0;
  bool is_latest = false;
};

// Lists the checkpoints of a folder by step, without looking into them.
std::vector<ListedCheckpoint> list_checkpoints(const Folder& folder);
// Lists checkpoints that were set aside because a run went back to an earlier
// step, or because one of the same step replaced them. Nothing resumes from
// "step_00000300.left-…" automatically, but it can be read by its path.
std::vector<ListedCheckpoint> list_set_aside(const Folder& folder);
// Lists checkpoints in the order in which a run tries to resume: newest first,
// including those newer than the one named by `latest` (left by a run that was
// killed before it could name them). If `latest` says that later ones are
// abandoned, they come last.
std::vector<ListedCheckpoint> resume_order(const Folder& folder);

// Opens the folder of a pending checkpoint, on any rank. Throws UsageError for
// a name that begin() does not give.
Folder open_pending(const std::string& store_path, const std::string& name,
                    FileSystem& system = FileSystem::system());

struct PruneReport {
  std::vector<std::string> kept;
  std::vector<std::string> removed;
  std::vector<std::string> damaged;  // kept, but not counted
};

class PendingCheckpoint;

class CheckpointStore {
 public:
  // Creates the folder if its parent exists, and removes what killed writers
  // left. Throws UsageError with the other process's `owner` if it holds the
  // folder.
  CheckpointStore(const std::string& path, std::string_view owner,
                  FileSystem& system = FileSystem::system());
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  const Folder& folder() const { return *folder_; }
  // Throws StorageError, with both numbers, if there is not enough space for
  // `count` checkpoints of this many bytes.
  void require_space(int64_t bytes, int64_t count = 1) const;

  // One at a time. The store must outlive it.
  PendingCheckpoint begin(int64_t step);

  // For a run that continues from the checkpoint of this step: `latest` names
  // it, and later checkpoints, which no longer belong to the run, are set
  // aside: step_00000300 becomes step_00000300.left-<id>, from which nothing
  // resumes unless it is named. prune() removes them like older ones. Returns
  // the steps that were set aside. Does nothing if this is the latest and there
  // are no later ones; may be repeated after a failure.
  std::vector<int64_t> go_back_to(int64_t step);

  // Removes the checkpoints after the first `keep_last` that verify, in the
  // order of resume_order(); removes nothing if fewer verify. If the one named
  // by `latest` is removed because later ones are kept, `latest` then names the
  // first of these. Checkpoints that this store has committed or verified
  // before are not read again.
  PruneReport prune(int64_t keep_last);
  // Returns what prune() would do, without doing it.
  PruneReport prune_dry(int64_t keep_last);

 private:
  friend class PendingCheckpoint;
  void clean() const;
  void replace_latest(int64_t step) const;
  bool verifies(const std::string& name);

  std::optional<Folder> folder_;
  std::optional<FileLock> lock_;
  // For checkpoints that verified, the end of the manifest, which has its hash.
  std::map<std::string, std::string> verified_;
};

class PendingCheckpoint {
 public:
  PendingCheckpoint(PendingCheckpoint&& other) noexcept;
  PendingCheckpoint& operator=(PendingCheckpoint&&) = delete;
  ~PendingCheckpoint();

  int64_t step() const { return step_; }
  const std::string& folder_name() const { return name_; }
  const Folder& folder() const { return *folder_; }

  // "config.json", "plan.json", "rng.json", "data.json".
  void add_side_file(const std::string& name, std::string_view text);
  // `records` are what write_shard() returned on every rank. Replaces a
  // checkpoint of the same step. Throws UsageError if the records are not
  // complete, StorageError if the disk fails; then either the folder is as
  // before or the new checkpoint is complete.
  void commit(const std::vector<std::string>& records,
              const std::string& plan_digest);

 private:
  friend class CheckpointStore;
  PendingCheckpoint(CheckpointStore& store, int64_t step, std::string name);
  void put_in_place();

  CheckpointStore* store_;
  int64_t step_;
  std::string name_;  // empty: committed
  std::optional<Folder> folder_;
  Manifest side_files_;
};

}  // namespace canzona::checkpoint
