// Saves the state of a run, by all its ranks together.
//
//   RunSaver saver(runtime, world, {.folder = "runs/one/ckpt", .keep_last =
//   2}); while (training) {
//     …  runtime.step(…);
//     if (auto saved = saver.poll()) tell(*saved);
//     if (step % 100 == 0) saver.save(step, {{"config.json", config}});
//   }
//   while (auto saved = saver.finish()) tell(*saved);
//
// In the background, save() copies what this rank gives into memory that was
// reserved at the start and returns; a thread writes it, agrees with those of
// the other ranks, and rank 0's commits: the checkpoint appears, whole or not
// at all (docs/checkpoints.md), as soon as the last rank has written. One save
// is on its way at a time: the next one waits for it. A save that fails leaves
// older checkpoints as they were, is told as such, and the run goes on.
//
// All ranks construct and save in the same order, between steps; `world` is
// used by nobody else meanwhile. Runtime and world outlive it. A saver that
// ends with a save on its way drops it, unless it is written already.
//
// Files may take as long as they like: ranks that wait for a save tell each
// other so, and one that does not come within the deadline of `world` ends the
// wait with PeerLost that names it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

// A small text beside the tensors, such as "config.json".
struct SideFile {
  std::string name;
  std::string text;
};

struct SaveSettings {
  std::string folder;     // that holds the run's checkpoints
  std::string owner;      // what its lock says of this process
  int64_t keep_last = 0;  // older ones are removed; 0: none is
  bool background = true;
};

// A SavedStep says how a save ended; the same on all ranks, but for the notes,
// which rank 0 has.
struct SavedStep {
  int64_t step = 0;
  int64_t bytes = 0;         // of all ranks
  double seconds = 0;        // until it was committed
  double pause_seconds = 0;  // of these, in save(): the most of any rank
  std::string failure = {};  // "": committed
  bool not_finite = false;   // it failed because of the weights, not the disk
  std::vector<std::string> notes = {};  // of older ones: removed, damaged
};

class RunSaver {
 public:
  // Rank 0 takes the folder's lock and removes what killed writers left. All
  // ranks throw UsageError if another run holds the folder, StorageError if
  // there is no room for the checkpoints.
  RunSaver(Runtime& runtime, Communicator& world, const SaveSettings& settings);
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;
  RunSaver& operator=(const RunSaver&) = delete;

  // Bytes that this rank has reserved.
  int64_t staging_bytes() const;

  // `side_files` are rank 0's. poll() or finish() tell how it ended.
  void save(int64_t step, const std::vector<SideFile>& side_files);
  // Returns how a save ended, each once, in order; nothing while it is on its
  // way. Ranks may learn it at different steps.
  std::optional<SavedStep> poll();
  // The same, after waiting for what is on its way.
  std::optional<SavedStep> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The bytes that a rank of a plan gives to a checkpoint, which a saver in the
// background reserves. `device`: of the engine.
int64_t given_bytes(const Plan& plan, int32_t rank,
                    const RuntimeOptions& options,
                    const std::string& device = "cpu");

}  // namespace canzona
