// Descriptions of matrices for Hopper's copy engine: boxes of `box` rows and
// columns, swizzled by 128 bytes; what lies outside a matrix reads as zero and
// is not written.
#pragma once

#include <cuda.h>

#include "canzona/linalg/cuda/tiles/tile_product_task.h"

namespace canzona {

struct TileMaps {
  CUtensorMap a;
  CUtensorMap b;
  CUtensorMap c;
  CUtensorMap d;
};

bool same_tiles(const Tiles& x, const Tiles& y);

// If the task has no C or no D, the map of A takes its place.
TileMaps make_tile_maps(const TileTask& task, int32_t box);

}  // namespace canzona
