// The kernel for GPUs from compute capability 8.0 on: matrix instructions of
// warps, asynchronous copies to shared memory. One block of threads per 128 x
// 128 elements of a result.
#include <algorithm>

#include "canzona/linalg/cuda/tiles/tile_product_fragments.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_task.h"

namespace canzona::linalg {
namespace {

struct PortableArgs {
  TileSchedule schedule;
  Tiles a;
  Tiles b;
  Tiles c;
  Tiles d;
  TileWeights floats;
  int32_t m;
  int32_t n;
  int32_t k;
  float alpha;
  float beta;
  float diagonal;
  StripTree tree;
};

// Keeps sums of strips in memory (StripTree) until the tree adds them, four of
// a thread side by side.
class WaitingSums {
 public:
  __device__ explicit WaitingSums(const StripTree& tree) : tree_(tree) {}

  // Must be called after the stage that ends strip s. Clears the sums for the
  // next strip; after the last one they are those of all strips.
  __device__ void take(WarpSums& sums, int32_t s) const {
    const bool is_last = s + 1 == tree_.count;
    const int32_t own = __popc(static_cast<uint32_t>(s));
    const int32_t last = __popc(static_cast<uint32_t>(s) + 1) - 1;
    for (int32_t place = own - 1; place >= last; --place)
      for_quads(sums, place, [](float(&sum)[4], float4& kept) {
        sum[0] = __fadd_rn(kept.x, sum[0]);
        sum[1] = __fadd_rn(kept.y, sum[1]);
        sum[2] = __fadd_rn(kept.z, sum[2]);
        sum[3] = __fadd_rn(kept.w, sum[3]);
      });
    if (is_last) return;
    for_quads(sums, last, [](float(&sum)[4], float4& kept) {
      kept = {sum[0], sum[1], sum[2], sum[3]};
      sum[0] = sum[1] = sum[2] = sum[3] = 0;
    });
  }

 private:
  static constexpr int32_t kQuads = kWarpRows / 16 * (kWarpCols / 8);

  template <class Do>
  __device__ void for_quads(WarpSums& sums, int32_t place,
                            const Do& act) const {
    const int64_t block = int64_t{place} * gridDim.x + blockIdx.x;
    float4* quads = reinterpret_cast<float4*>(tree_.scratch) +
                    block * kQuads * kBlockThreads + threadIdx.x;
#pragma unroll
    for (int32_t i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
      for (int32_t j = 0; j < kWarpCols / 8; ++j)
        act(sums[i][j], quads[(i * (kWarpCols / 8) + j) * kBlockThreads]);
  }

  const StripTree& tree_;
};

template <bool kBf16, bool kAAcrossK, bool kBAcrossK, bool kStrips>
__device__ void sum_block(WarpSums& sums, const PortableArgs& args,
                          TileBlock block, uint16_t* shared) {
  const OperandRows<kAAcrossK> a(args.a, block.matrix, block.row * kSide);
  const OperandRows<kBAcrossK> b(args.b, block.matrix, block.col * kSide);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row = warp / kWarpsAcross * kWarpRows;
  const int32_t col = warp % kWarpsAcross * kWarpCols;
  const int32_t stages = (args.k + kDepth - 1) / kDepth;
  const auto fetch = [&](int32_t i) {
    uint16_t* stage = shared + i % kRing * kStageElements;
    if (i < stages) {
      a.copy(stage, i * kDepth);
      b.copy(stage + kOperandElements, i * kDepth);
    }
    copies_commit();
  };
  for (int32_t i = 0; i < kRing - 1; ++i) fetch(i);
  int32_t strip = 0;
  for (int32_t i = 0; i < stages; ++i) {
    copies_wait<kRing - 2>();
    __syncthreads();
    fetch(i + kRing - 1);
    add_stage<kBf16, kAAcrossK, kBAcrossK>(
        sums, shared + i % kRing * kStageElements, row, col);
    if constexpr (kStrips)
      if (i + 1 == args.tree.ends[strip])
        WaitingSums(args.tree).take(sums, strip++);
  }
}

// One element of a 16-bit result, before it is rounded.
template <bool kBf16>
__device__ float finish_element(float sum, const PortableArgs& args,
                                int32_t matrix, int32_t row, int32_t col) {
  float value = __fmul_rn(args.alpha, sum);
  if (args.c.data != nullptr) {
    const auto* c = reinterpret_cast<const uint16_t*>(args.c.data);
    const uint16_t bits =
        c[matrix * args.c.matrix_stride + row * args.c.row_stride + col];
    value = add_scaled(value, args.beta, Pair<kBf16>::unpack(bits).x);
  }
  if (row == col) value = __fadd_rn(value, args.diagonal);
  return value;
}

template <bool kBf16>
__device__ void store_half(float sum, const PortableArgs& args, int32_t matrix,
                           int32_t row, int32_t col) {
  if (row >= args.m || col >= args.n) return;
  if (args.schedule.triangle && col > row) return;
  const float value = finish_element<kBf16>(sum, args, matrix, row, col);
  const auto bits = static_cast<uint16_t>(Pair<kBf16>::pack(value, 0));
  uint16_t* d =
      reinterpret_cast<uint16_t*>(args.d.data) + matrix * args.d.matrix_stride;
  d[row * args.d.row_stride + col] = bits;
  if (args.schedule.triangle) d[col * args.d.row_stride + row] = bits;
}

__device__ inline void store_float(float sum, const PortableArgs& args,
                                   int32_t matrix, int32_t row, int32_t col) {
  if (row >= args.m || col >= args.n) return;
  const int64_t at = skipped_before(args.floats, matrix, row) +
                     static_cast<int64_t>(row) * args.n + col;
  float& out = args.floats.weights[matrix][at];
  float value = __fmul_rn(args.alpha, sum);
  if (args.floats.scalars != nullptr)
    value = WeightScalars::load(args.floats.scalars).apply(out, value);
  out = value;
  if (args.floats.copies != nullptr)
    args.floats.copies[matrix][at] = weight_of_master(__float_as_uint(value));
}

template <bool kBf16>
__device__ void store_block(const WarpSums& sums, const PortableArgs& args,
                            TileBlock block) {
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t row0 =
      block.row * kSide + warp / kWarpsAcross * kWarpRows + lane / 4;
  const int32_t col0 =
      block.col * kSide + warp % kWarpsAcross * kWarpCols + lane % 4 * 2;
#pragma unroll
  for (int32_t i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
    for (int32_t j = 0; j < kWarpCols / 8; ++j)
#pragma unroll
      for (int32_t e = 0; e < 4; ++e) {
        const int32_t row = row0 + 16 * i + e / 2 * 8;
        const int32_t col = col0 + 8 * j + e % 2;
        if (args.floats.weights != nullptr)
          store_float(sums[i][j][e], args, block.matrix, row, col);
        else
          store_half<kBf16>(sums[i][j][e], args, block.matrix, row, col);
      }
}

template <bool kBf16, bool kAAcrossK, bool kBAcrossK>
__global__ void __launch_bounds__(kBlockThreads)
    portable_kernel(const __grid_constant__ PortableArgs args) {
  extern __shared__ uint4 memory[];
  const TileBlock block = args.schedule.block(static_cast<int32_t>(blockIdx.x));
  WarpSums sums = {};
  sum_block<kBf16, kAAcrossK, kBAcrossK, false>(
      sums, args, block, reinterpret_cast<uint16_t*>(memory));
  store_block<kBf16>(sums, args, block);
}

// Returns the number of blocks for which StripTree has room.
unsigned most_blocks() {
  constexpr int64_t kFloats = int64_t{kSide} * kSide;
  return static_cast<unsigned>(StripTree::kFloatsPerProcessor / kFloats *
                               tile_multiprocessors());
}

// Blocks are persistent and take one part of the result after another, so that
// few sums are kept at a time.
template <bool kBf16, bool kAAcrossK, bool kBAcrossK>
__global__ void __launch_bounds__(kBlockThreads)
    portable_strips_kernel(const __grid_constant__ PortableArgs args) {
  extern __shared__ uint4 memory[];
  for (auto i = static_cast<int32_t>(blockIdx.x); i < args.schedule.num_blocks;
       i += static_cast<int32_t>(gridDim.x)) {
    const TileBlock block = args.schedule.block(i);
    WarpSums sums = {};
    sum_block<kBf16, kAAcrossK, kBAcrossK, true>(
        sums, args, block, reinterpret_cast<uint16_t*>(memory));
    store_block<kBf16>(sums, args, block);
    // Other threads may still read the last stages.
    __syncthreads();
  }
}

template <bool kBf16, bool kAAcrossK, bool kBAcrossK, bool kStrips>
void launch(const TileTask& task, cudaStream_t stream) {
  const PortableArgs args{TileSchedule::make(task.m, task.n, task.count, kSide,
                                             kSide, task.triangle),
                          task.product.a,
                          task.product.b,
                          task.addend.c,
                          task.d,
                          task.floats,
                          static_cast<int32_t>(task.m),
                          static_cast<int32_t>(task.n),
                          static_cast<int32_t>(task.k),
                          task.product.alpha,
                          task.addend.beta,
                          task.addend.diagonal,
                          StripTree::make(task, kDepth)};
  const auto kernel = kStrips
                          ? portable_strips_kernel<kBf16, kAAcrossK, kBAcrossK>
                          : portable_kernel<kBf16, kAAcrossK, kBAcrossK>;
  auto blocks = static_cast<unsigned>(args.schedule.num_blocks);
  if (kStrips) blocks = std::min(blocks, most_blocks());
  check_tile_call(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedBytes),
      "cudaFuncSetAttribute of the portable tile product");
  kernel<<<blocks, kBlockThreads, kSharedBytes, stream>>>(args);
  check_tile_call(cudaGetLastError(),
                  "the launch of the portable tile product");
}

template <bool kBf16>
void launch_order(const TileTask& task, cudaStream_t stream) {
  const bool in_strips = task.in_strips();
  switch (task.product.order) {
    case TileOrder::kABt:
      return in_strips ? launch<kBf16, false, false, true>(task, stream)
                       : launch<kBf16, false, false, false>(task, stream);
    case TileOrder::kAtB:
      return in_strips ? launch<kBf16, true, true, true>(task, stream)
                       : launch<kBf16, true, true, false>(task, stream);
    case TileOrder::kAB:
      return launch<kBf16, false, true, false>(task, stream);
  }
}

}  // namespace

void run_tile_task_portable(const TileTask& task, cudaStream_t stream) {
  if (task.product.type == TileType::kBf16)
    launch_order<true>(task, stream);
  else
    launch_order<false>(task, stream);
}

}  // namespace canzona::linalg
