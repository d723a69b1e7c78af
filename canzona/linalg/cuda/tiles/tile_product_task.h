// Common to the kernels of tile_product.h: a checked product, and the numbering
// of a launch's tasks. Only for the files tile_product*.cu.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona::linalg {

// A product whose operands fit. Either `d` or `floats` receives the result; the
// scalars of floats are null if the product itself is stored.
struct TileTask {
  // True if strips are added, or if only the lower half of an fp32 result is
  // wanted.
  bool in_strips() const {
    return product.strips.count > 1 || (triangle && floats.weights != nullptr);
  }

  TileProduct product;
  Tiles d;
  TileAddend addend;
  bool triangle = false;
  TileWeights floats;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t count = 0;
};

// Keeps sums of strips until the tree adds them; a thread reads and
// writes only numbers of its own. Sum s is added to the earlier sums whose
// subtrees end with it. The result goes to the tree's place for it or, after
// the last strip, is the whole sum.
struct StripTree {
  // All threads that a multiprocessor runs at a time share these.
  static constexpr int64_t kFloatsPerProcessor = 32768;

  int32_t count;
  int32_t ends[TileStrips::kMost];  // of strips, in steps of k
  float* scratch;

  static StripTree make(const TileTask& task, int64_t step);
};

void run_tile_task_hopper(const TileTask& task, cudaStream_t stream);
void run_tile_task_portable(const TileTask& task, cudaStream_t stream);

// Throws InternalError naming `what` unless `status` is a success.
void check_tile_call(cudaError_t status, const char* what);
int tile_device_attribute(cudaDeviceAttr attribute);
// Returns how many multiprocessors a kernel of the calling thread may use.
int tile_multiprocessors();

}  // namespace canzona::linalg
