// Descriptors of matrices for Hopper's copy engine: boxes of `box` rows and
// columns, swizzled by 128 bytes; elements outside a matrix read as zero and
// are not written.
#pragma once

#include <cuda.h>

#include "canzona/linalg/cuda/tiles/tile_product_task.h"

namespace canzona::linalg {

struct TileMaps {
  CUtensorMap a;
  CUtensorMap b;
  CUtensorMap c;
  CUtensorMap d;
};

bool same_tiles(const Tiles& x, const Tiles& y);

// If the task has no C or no D, the map of A is used instead.
TileMaps make_tile_maps(const TileTask& task, int32_t box);

}  // namespace canzona::linalg
