// Saves the state of a run from all its ranks.
//
//   SaveSettings settings{.folder = "runs/one/ckpt", .keep_last = 2};
//   RunSaver saver(runtime, world, settings);
//   while (training) {
//     …  runtime.step(…);
//     if (auto saved = saver.poll()) tell(*saved);
//     if (step % 100 == 0) saver.save(step, {{"config.json", config}});
//   }
//   while (auto saved = saver.finish()) tell(*saved);
//
// In background mode, save() copies this rank's data to memory that was
// reserved at the start and returns; a thread writes it and agrees with the
// threads of the other ranks, and rank 0's commits. The checkpoint appears,
// whole or not at all (docs/checkpoints.md), as soon as the last rank has
// written. One save is in flight at a time: the next one waits for it. A save
// that fails leaves older checkpoints as they were and is reported, and the run
// goes on.
//
// All ranks must construct and save in the same order, between steps; nobody
// else may use `world` meanwhile. Runtime and world must outlive the saver. A
// saver that is destroyed with a save in flight drops it, unless it is already
// written.
//
// Writing files may take any time: ranks that wait for a save exchange
// heartbeats, and one that is silent for the deadline of `world` ends the wait
// with PeerLost naming it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/checkpoint/boxes.h"
#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

// A RankOutcome says how something ended on a rank, so that all ranks can learn
// it: only one rank handles files, but every rank ends with the same error and
// exit status.
//
//   const RankOutcome own = outcome_of([&] { write(…); });
//   require_all(world, own);     // throws the same on every rank, or on none
//
// These are plain values.

// The tensors of a checkpoint in which a runtime's state is saved. Internal to
// this room.
inline LogicalTensor tensor_of(const StateBox& box) {
  return {box.name(), DType::kFp32, box.shape};
}
inline Box box_of(const StateBox& box) { return {box.first, box.count}; }

// The number of steps done, without those that were skipped.
inline LogicalTensor steps_tensor() {
  return {"run/steps_done", DType::kI64, {}};
}

struct RankOutcome {
  enum class Kind : int32_t {
    kDone,
    kUsage,
    kRefused,
    kStorage,
    kNumerical,
    kOther
  };
  Kind kind = Kind::kDone;
  std::string text = {};  // of the error

  bool failed() const { return kind != Kind::kDone; }
};

// Catches what `body` throws except PeerLost, because a rank that lost a peer
// cannot tell the others.
RankOutcome outcome_of(const std::function<void()>& body);

// Returns the outcome of the first rank that failed, or kDone. All ranks must
// call; texts are truncated to some hundred bytes.
RankOutcome first_failure(Communicator& world, const RankOutcome& own,
                          const Call& call = {.label = "how it ended"});

// Throws the error that the outcome was made from, if it failed.
void throw_failure(const RankOutcome& outcome);

// Combines the two above.
inline void require_all(Communicator& world, const RankOutcome& own) {
  throw_failure(first_failure(world, own));
}
// Calls `body` on rank 0 only; all ranks throw what it throws.
void at_first(Communicator& world, const std::function<void()>& body);

// A small text beside the tensors, such as "config.json".
struct SideFile {
  std::string name;
  std::string text;
};

struct SaveSettings {
  std::string folder;     // with the run's checkpoints
  std::string owner;      // how the lock describes this process
  int64_t keep_last = 0;  // older ones are removed; 0 keeps all
  bool background = true;
};

// A SavedStep says how a save ended. It is the same on all ranks except for the
// notes, which only rank 0 has.
struct SavedStep {
  int64_t step = 0;
  int64_t bytes = 0;         // of all ranks
  double seconds = 0;        // until the commit
  double pause_seconds = 0;  // of these, the longest save() of any rank
  std::string failure = {};  // "" if committed
  bool not_finite = false;   // failed because of the weights, not the disk
  std::vector<std::string> notes = {};  // on older ones: removed, damaged
};

class RunSaver {
 public:
  // Rank 0 takes the folder's lock and removes what killed writers left. All
  // ranks throw UsageError if another run holds the folder, StorageError if
  // there is not enough space for the checkpoints.
  RunSaver(Runtime& runtime, Communicator& world, const SaveSettings& settings);
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;
  RunSaver& operator=(const RunSaver&) = delete;

  // Bytes reserved by this rank.
  int64_t staging_bytes() const;

  // `side_files` are taken from rank 0. poll() or finish() says how the save
  // ended.
  void save(int64_t step, const std::vector<SideFile>& side_files);
  // Returns how a save ended, each one once, in order; nothing while it is in
  // flight. Ranks may learn it at different steps.
  std::optional<SavedStep> poll();
  // The same, after waiting for a save in flight.
  std::optional<SavedStep> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the bytes that a rank of a plan contributes to a checkpoint, which a
// background saver reserves. `device` is the engine's.
int64_t given_bytes(const Plan& plan, int32_t rank,
                    const RuntimeOptions& options,
                    const std::string& device = "cpu");

}  // namespace canzona
