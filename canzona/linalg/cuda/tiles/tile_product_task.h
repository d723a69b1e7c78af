// Common to the kernels of tile_product.h: a checked product, and the numbering
// of a launch's tasks. Only for the files tile_product*.cu.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product.h"

namespace canzona {

// Outputs in fp32; `scalars` is null if the product itself is stored.
struct TileFloats {
  float* const* out = nullptr;
  uint16_t* const* copies = nullptr;
  const float* scalars = nullptr;
};

// A product whose operands fit. Either `d` or `floats` receives the result.
struct TileTask {
  TileProduct product;
  Tiles d;
  TileAddend addend;
  bool triangle = false;
  TileFloats floats;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t count = 0;
};

void run_tile_task_hopper(const TileTask& task, cudaStream_t stream);
void run_tile_task_portable(const TileTask& task, cudaStream_t stream);

// Throws InternalError naming `what` unless `status` is a success.
void check_tile_call(cudaError_t status, const char* what);
int tile_device_attribute(cudaDeviceAttr attribute);

}  // namespace canzona
