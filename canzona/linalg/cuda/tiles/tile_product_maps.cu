#include "canzona/linalg/cuda/tiles/tile_product_maps.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <string>

#include "canzona/base/error.h"

namespace canzona {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

// Queried from the driver when it is needed: a program that links the driver
// would not start on a machine without one.
Encode find_encode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_tile_call(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                       cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || entry == nullptr)
    throw InternalError("the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(entry);
}

CUtensorMap make_map(const Tiles& tiles, TileType type, int32_t box) {
  static const Encode encode = find_encode();
  const auto unsigned_of = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const int64_t next =
      tiles.count > 1 ? tiles.matrix_stride : tiles.rows * tiles.row_stride;
  const cuuint64_t sizes[3] = {unsigned_of(tiles.cols), unsigned_of(tiles.rows),
                               unsigned_of(tiles.count)};
  const cuuint64_t bytes[2] = {unsigned_of(tiles.row_stride * 2),
                               unsigned_of(next * 2)};
  const auto side = static_cast<cuuint32_t>(box);
  const cuuint32_t boxes[3] = {side, side, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      type == TileType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      3, tiles.data, sizes, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw InternalError("cuTensorMapEncodeTiled failed with error " +
                        std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace

bool same_tiles(const Tiles& x, const Tiles& y) {
  return x.data == y.data && x.rows == y.rows && x.cols == y.cols &&
         x.row_stride == y.row_stride && x.matrix_stride == y.matrix_stride &&
         x.folded == y.folded;
}

TileMaps make_tile_maps(const TileTask& task, int32_t box) {
  const TileProduct& product = task.product;
  const TileType type = product.type;
  TileMaps maps;
  maps.a = make_map(product.a, type, box);
  maps.b = same_tiles(product.a, product.b) ? maps.a
                                            : make_map(product.b, type, box);
  const Tiles& c = task.addend.c;
  maps.c = c.data == nullptr || same_tiles(c, product.a)
               ? maps.a
               : make_map(c, type, box);
  maps.d = task.d.data == nullptr ? maps.a : make_map(task.d, type, box);
  return maps;
}

}  // namespace canzona
