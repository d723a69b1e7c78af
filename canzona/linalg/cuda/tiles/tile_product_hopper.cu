// The kernel for compute capability 9.0: tensor memory copies, matrix
// instructions of warpgroups, and a cluster of two blocks per 256 x 256
// elements. Blocks are persistent and take one such square after another.
#include "canzona/linalg/cuda/tiles/tile_product_hopper.h"

#include <cudaTypedefs.h>

#include <string>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/tiles/tile_product_consumer.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_floats.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_halves.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"

namespace canzona::linalg {
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

namespace {

// Registers per thread of the fetching and the multiplying warpgroups.
constexpr uint32_t kFewRegisters = 40;
constexpr uint32_t kManyRegisters = 232;
constexpr uint32_t kAlignment = 1024;

template <class V>
__device__ void consume(SharedPlan<V> plan, uint32_t group,
                        const KernelArgs& args) {
  Consumer<V> consumer(plan, group);
  HalfEpilogue<V> halves(plan, group, args);
  FloatEpilogue<V> floats(plan, group, args);
  float sums[kSums];
  const auto taker = static_cast<int32_t>(blockIdx.x / kClusterBlocks);
  int32_t turn = 0;
  int32_t i = args.schedule.index(taker, turn);
  TileBlock next = args.schedule.block(i);
  while (i < args.schedule.num_blocks) {
    const TileBlock block = next;
    const GroupAt at{block.row * kClusterSide + consumer.strip() * kBox,
                     block.col * kClusterSide, block.matrix};
    i = args.schedule.index(taker, ++turn);
    consumer.sum(sums, args, block, [&] {
      if constexpr (V::kFloats) floats.fetch(at);
      next = args.schedule.block(i);
    });
    if constexpr (V::kFloats)
      floats.store(sums, at);
    else
      halves.store(sums, at);
  }
}

template <class V>
__device__ void produce(SharedPlan<V> plan, const KernelArgs& args,
                        const TileMaps& maps) {
  Producer<V> producer(plan, &maps.a, &maps.b);
  const auto taker = static_cast<int32_t>(blockIdx.x / kClusterBlocks);
  int32_t i = 0;
  for (int32_t turn = 0;
       (i = args.schedule.index(taker, turn)) < args.schedule.num_blocks;
       ++turn)
    producer.run(args, args.schedule.block(i));
}

template <class V>
__global__ void __cluster_dims__(kClusterBlocks, 1, 1)
    __launch_bounds__(kThreads, 1)
        tile_product_kernel(const __grid_constant__ TileMaps maps,
                            const __grid_constant__ KernelArgs args) {
  extern __shared__ std::byte memory[];
  const uint32_t start = shared_address(memory);
  const SharedPlan<V> plan{(start + kAlignment - 1) / kAlignment * kAlignment};
  if (threadIdx.x == 0) {
    plan.init_barriers();
    fetch_map(&maps.a);
    fetch_map(&maps.b);
  }
  __syncwarp();
  cluster_arrive_and_wait();
  const uint32_t group = threadIdx.x / kGroupThreads;
  if (group == kConsumerGroups) {
    give_registers<kFewRegisters>();
    const uint32_t warp = threadIdx.x % kGroupThreads / 32;
    if (warp == 0) produce<V>(plan, args, maps);
    if constexpr (!V::kFloats)
      if (warp > 0 && warp <= kConsumerGroups && threadIdx.x % 32 == 0)
        Sender<V>(plan, warp - 1, args, maps).run();
  } else {
    take_registers<kManyRegisters>();
    consume<V>(plan, group, args);
  }
  // The other block may still arrive at this one's barriers.
  __syncwarp();
  cluster_arrive_and_wait();
}

KernelArgs kernel_args(const TileTask& task) {
  const int32_t most =
      tile_multiprocessors() / static_cast<int32_t>(kClusterBlocks);
  return {TileSchedule::make(task.m, task.n, task.count, kClusterSide,
                             kClusterSide, task.triangle)
              .shared_by(most),
          static_cast<int32_t>(task.m),
          static_cast<int32_t>(task.n),
          static_cast<int32_t>((task.k + kBox - 1) / kBox),
          task.product.alpha,
          task.addend.beta,
          task.addend.diagonal,
          same_tiles(task.product.a, task.product.b) &&
              task.product.order != TileOrder::kAB,
          task.product.a.folded,
          task.product.b.folded,
          task.d.folded,
          task.floats,
          StripTree::make(task, kBox)};
}

template <class V>
void launch(const TileTask& task, cudaStream_t stream) {
  constexpr uint32_t kBytes = SharedPlan<V>::kBytes + kAlignment;
  static_assert(kBytes <= 227 * 1024);
  const TileMaps maps = make_tile_maps(task, kBox);
  const KernelArgs args = kernel_args(task);
  check_tile_call(
      cudaFuncSetAttribute(tile_product_kernel<V>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "cudaFuncSetAttribute of the tile product");
  tile_product_kernel<V>
      <<<args.schedule.takers * kClusterBlocks, kThreads, kBytes, stream>>>(
          maps, args);
  check_tile_call(cudaGetLastError(), "the launch of the tile product");
}

template <bool kBf16, Result kResult>
void launch_strips(const TileTask& task, cudaStream_t stream) {
  if (task.product.order == TileOrder::kABt)
    launch<Variant<kBf16, false, false, kResult, true>>(task, stream);
  else
    launch<Variant<kBf16, true, true, kResult, true>>(task, stream);
}

template <bool kBf16, Result kResult>
void launch_order(const TileTask& task, cudaStream_t stream) {
  if constexpr (kResult != Result::kHalvesWithAddend)
    if (task.in_strips()) return launch_strips<kBf16, kResult>(task, stream);
  switch (task.product.order) {
    case TileOrder::kABt:
      return launch<Variant<kBf16, false, false, kResult>>(task, stream);
    case TileOrder::kAtB:
      return launch<Variant<kBf16, true, true, kResult>>(task, stream);
    case TileOrder::kAB:
      return launch<Variant<kBf16, false, true, kResult>>(task, stream);
  }
}

template <bool kBf16>
void launch_result(const TileTask& task, cudaStream_t stream) {
  if (task.floats.weights != nullptr)
    launch_order<kBf16, Result::kFloats>(task, stream);
  else if (task.addend.c.data != nullptr)
    launch_order<kBf16, Result::kHalvesWithAddend>(task, stream);
  else
    launch_order<kBf16, Result::kHalves>(task, stream);
}

}  // namespace

void run_tile_task_hopper(const TileTask& task, cudaStream_t stream) {
  if (task.product.type == TileType::kBf16)
    launch_result<true>(task, stream);
  else
    launch_result<false>(task, stream);
}

}  // namespace canzona::linalg
