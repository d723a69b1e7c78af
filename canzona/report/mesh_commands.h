// Command lines that run a layout, to copy: for `canzona train`, PyTorch under
// torchrun, and Megatron-Core.
//
//   for (const MeshCommand& one : mesh_commands({{.model = "qwen3-8b", …}}))
//     std::cout << one.runs << ": "
//               << (one.line.empty() ? one.why_not : one.line) << "\n";
//
// An engine that does not have the layout gets a reason instead of a command.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/mesh.h"
#include "canzona/plan/zero.h"

namespace canzona::report {

struct LaunchedMesh {
  std::string model;  // as the user named it
  std::string rule;
  Mesh mesh;
  ZeroOptions zero = {};
  int32_t ranks_per_node = 8;
  int64_t tokens = 0;  // of a micro-batch
  int64_t num_micro_batches = 1;
  int64_t length = 0;  // of a sequence
  bool recompute = false;
  std::string untrained = {};  // why `canzona train` does not train the model
};

struct MeshCommand {
  std::string runs;     // "canzona train"
  std::string line;     // empty: there is none
  std::string why_not;  // why there is none for the first layout
  size_t layout = 0;    // which of several the line runs
};

// One for each engine: of the first of these layouts, fastest first, that the
// engine has.
std::vector<MeshCommand> mesh_commands(
    const std::vector<LaunchedMesh>& fastest_first);

}  // namespace canzona::report
