// Takes over the state that a run has saved, on any mesh and plan.
//
//   LoadedState loaded =
//       load_state(runtime, world, {.folder = "runs/one/ckpt"});
//   for (const std::string& note : loaded.notes) …;
//   step = loaded.step;
//
// Each rank reads the boxes it keeps, wherever they were saved, and no byte
// that does not have its checksum. All ranks call it, between steps, and return
// or throw alike; after an error the runtime's state is not defined. Memory
// beside the state: the manifest and some 32 MiB.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

struct LoadRequest {
  std::string folder;          // that holds a run's checkpoints
  std::string which = "auto";  // or a step, or a checkpoint's own folder
  // Weights alone; states stay as they begin, and the steps done at 0.
  bool weights_only = false;
  int threads = 1;  // of each rank
};

struct LoadedState {
  int64_t step = 0;
  std::string path;                               // of the checkpoint
  std::vector<std::string> notes;                 // those passed over, and why
  std::map<std::string, std::string> side_files;  // by name
};

// With "auto" the newest that is whole: one that turns out to be damaged is
// passed over. CheckpointRefused names the file and tensor that is damaged, or
// what the run and the checkpoint do not have in common; UsageError if there is
// no checkpoint of this name. Neither of them if a peer is lost.
LoadedState load_state(Runtime& runtime, Communicator& world,
                       const LoadRequest& request);

// True if there is a checkpoint in the folder; false if there is no folder.
bool has_checkpoint(const std::string& folder);

}  // namespace canzona
