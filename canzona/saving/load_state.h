// Loads the state that a run has saved, into any mesh and plan.
//
//   LoadedState loaded =
//       load_state(runtime, world, {.folder = "runs/one/ckpt"});
//   for (const std::string& note : loaded.notes) …;
//   step = loaded.step;
//
// Each rank reads the boxes it keeps, wherever they were saved, and verifies
// every byte. All ranks must call it, between steps, and all return or all
// throw; after an error the runtime's state is undefined. In addition to the
// state it needs memory for the manifest and some 32 MiB.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

struct LoadRequest {
  std::string folder;          // with the run's checkpoints
  std::string which = "auto";  // or a step, or a checkpoint's own folder
  // Loads only the weights; states and the number of steps done keep their
  // initial values.
  bool weights_only = false;
  // States that were not saved keep their values; the runtime must be new then,
  // and a damaged checkpoint is not skipped. Otherwise they are an error.
  bool begins_missing = false;
  int threads = 1;  // per rank
};

struct LoadedState {
  int64_t step = 0;
  std::string path;                               // of the checkpoint
  std::vector<std::string> notes;                 // checkpoints that were
                                                  // skipped, and why
  std::map<std::string, std::string> side_files;  // by name
};

// "auto" loads the newest complete checkpoint; one that turns out to be damaged
// is skipped. Throws CheckpointRefused naming the file and tensor that is
// damaged, or what differs between the run and the checkpoint; throws
// UsageError if there is no checkpoint of this name; throws neither if a peer
// is lost.
LoadedState load_state(Runtime& runtime, Communicator& world,
                       const LoadRequest& request);

// True if there is a checkpoint in the folder; false if there is no folder.
bool has_checkpoint(const std::string& folder);

}  // namespace canzona
