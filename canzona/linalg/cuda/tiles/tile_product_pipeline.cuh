// The pipeline of the Hopper kernel, and who fills it. A cluster of two blocks
// computes 256 x 256 elements: four strips of 64 rows, one for each of the
// blocks' two consumer warpgroups. A block fetches its own strips of A and half
// of B, which the copy engine delivers to both blocks, so that B leaves the L2
// cache once for two.
//
// On the diagonal of a symmetric result strip s needs only s + 1 of the four
// boxes of 64 columns. The first block has strips 0 and 3, the second 1 and 2,
// so that both have the same work.
//
// Stages go round in a ring. `full` counts the bytes that have come to this
// block; `empty` counts the warps of both blocks that are done with a stage,
// since either block's producer writes into both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "canzona/linalg/cuda/tiles/tile_product_numbers.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_task.h"

namespace canzona::linalg {

// The schedule determines the order of the blocks of the result. Blocks are
// numbered matrix by matrix, so that those of one matrix are computed close in
// time and find its operands in the L2 cache.

namespace {

struct TileBlock {
  int32_t matrix;
  int32_t row;  // in blocks
  int32_t col;
};

struct TileSchedule {
  int32_t block_rows;
  int32_t block_cols;
  int32_t blocks_per_matrix;
  int32_t num_blocks;
  bool triangle;
  int32_t takers = 1;     // that share the blocks
  int32_t rotation = 0;   // of the takers from turn to turn
  int32_t num_below = 0;  // blocks below the diagonal, if they come first

  // Rows of blocks that advance together before the next column of blocks.
  static constexpr int32_t kBand = 8;

  static TileSchedule make(int64_t m, int64_t n, int64_t count, int64_t side_m,
                           int64_t side_n, bool triangle) {
    const int64_t rows = (m + side_m - 1) / side_m;
    const int64_t cols = (n + side_n - 1) / side_n;
    const int64_t blocks = triangle ? rows * (rows + 1) / 2 : rows * cols;
    return {static_cast<int32_t>(rows), static_cast<int32_t>(cols),
            static_cast<int32_t>(blocks), static_cast<int32_t>(blocks * count),
            triangle};
  }

  // Blocks on the diagonal of a symmetric result take less work. They come last
  // if there are few blocks; otherwise every taker visits all positions in a
  // matrix as it goes from turn to turn.
  TileSchedule shared_by(int32_t most) const {
    constexpr int32_t kFewTurns = 4;
    TileSchedule shared = *this;
    shared.takers = std::min(most, num_blocks);
    if (!triangle) return shared;
    if (num_blocks <= kFewTurns * most)
      shared.num_below =
          num_blocks / blocks_per_matrix * (blocks_per_matrix - block_rows);
    else
      while (std::gcd(most + shared.rotation, blocks_per_matrix) > 1)
        ++shared.rotation;
    return shared;
  }

  // Returns the block of a taker at its turn; there is none, now or later, if
  // it is not below num_blocks.
  __device__ int32_t index(int32_t taker, int32_t turn) const {
    return turn * takers + (taker + turn * rotation) % takers;
  }

  __device__ TileBlock block(int32_t index) const {
    if (num_below > 0) return sorted_block(index);
    const int32_t matrix = index / blocks_per_matrix;
    const int32_t rest = index - matrix * blocks_per_matrix;
    return triangle ? triangle_block(matrix, rest) : band_block(matrix, rest);
  }

  // The blocks below the diagonal of all matrices come first.
  __device__ TileBlock sorted_block(int32_t index) const {
    const int32_t below = blocks_per_matrix - block_rows;
    if (index < num_below) {
      const int32_t matrix = index / below;
      TileBlock block = triangle_block(matrix, index - matrix * below);
      ++block.row;
      return block;
    }
    const int32_t rest = index - num_below;
    const int32_t matrix = rest / block_rows;
    const int32_t row = rest - matrix * block_rows;
    return {matrix, row, row};
  }

  // Row by row: (0,0), (1,0), (1,1), (2,0), ...
  __device__ static TileBlock triangle_block(int32_t matrix, int32_t rest) {
    auto row = static_cast<int32_t>(
        (sqrtf(8.0f * static_cast<float>(rest) + 1) - 1) / 2);
    if (row * (row + 1) / 2 > rest) --row;
    if ((row + 1) * (row + 2) / 2 <= rest) ++row;
    return {matrix, row, rest - row * (row + 1) / 2};
  }

  __device__ TileBlock band_block(int32_t matrix, int32_t rest) const {
    const int32_t band = rest / (kBand * block_cols);
    const int32_t height = min(kBand, block_rows - band * kBand);
    const int32_t inside = rest - band * kBand * block_cols;
    return {matrix, band * kBand + inside % height, inside / height};
  }
};

constexpr int32_t kClusterSide = 256;  // of the result, both ways
constexpr int32_t kBlockRows = 128;
constexpr int32_t kBox = 64;  // rows and columns of what is copied at once
constexpr uint32_t kBoxBytes = kBox * kBox * 2;
constexpr uint32_t kABytes = kBlockRows / kBox * kBoxBytes;
constexpr uint32_t kBBytes = kClusterSide / kBox * kBoxBytes;
constexpr uint32_t kStageBytes = kABytes + kBBytes;
constexpr uint32_t kChunks = kClusterSide / kBox;  // of a warpgroup's result
constexpr uint32_t kClusterBlocks = 2;
constexpr uint32_t kConsumerGroups = 2;
constexpr uint32_t kGroupThreads = 128;
constexpr uint32_t kThreads = (1 + kConsumerGroups) * kGroupThreads;
constexpr uint32_t kWarpsPerGroup = 4;
constexpr int32_t kStep = 16;  // of k in one matrix instruction

enum class Result { kHalves, kHalvesWithAddend, kFloats };

// One instance of the kernel is made for these.
template <bool kBf16_, bool kAAcrossK_, bool kBAcrossK_, Result kResult,
          bool kStrips_ = false>
struct Variant {
  static constexpr bool kBf16 = kBf16_;
  static constexpr bool kAAcrossK = kAAcrossK_;
  static constexpr bool kBAcrossK = kBAcrossK_;
  static constexpr bool kFloats = kResult == Result::kFloats;
  static constexpr bool kAddend = kResult == Result::kHalvesWithAddend;
  // Strips of k are added by the tree; blocks on the diagonal of a symmetric
  // result are computed by halves in fp32, too.
  static constexpr bool kStrips = kStrips_;
  static constexpr uint32_t kStages = 4;
  // Boxes of results that a warpgroup has room for.
  static constexpr uint32_t kBuffers = 2;
};

struct KernelArgs {
  TileSchedule schedule;
  int32_t m;
  int32_t n;
  int32_t k_boxes;
  float alpha;
  float beta;
  float diagonal;
  bool same;  // B is A, stored the same way
  bool a_folded;
  bool b_folded;
  bool d_folded;
  TileWeights floats;
  StripTree tree;
};

// Places in shared memory. Boxes come first because they need 1 KB of
// alignment.
template <class V>
struct SharedPlan {
  uint32_t base;

  static constexpr uint32_t kStaging = V::kStages * kStageBytes;
  static constexpr uint32_t kStagingBytes =
      kConsumerGroups * V::kBuffers * kBoxBytes;
  static constexpr uint32_t kBarriers = kStaging + kStagingBytes;
  static constexpr uint32_t kNumBuffers = kConsumerGroups * V::kBuffers;
  static constexpr uint32_t kNumBarriers = 2 * V::kStages + 2 * kNumBuffers;
  static constexpr uint32_t kBytes = kBarriers + 8 * kNumBarriers;

  __device__ uint32_t a(uint32_t stage) const {
    return base + stage * kStageBytes;
  }
  __device__ uint32_t b(uint32_t stage) const { return a(stage) + kABytes; }
  __device__ uint32_t staging(uint32_t group, uint32_t buffer = 0) const {
    return base + kStaging + (group * V::kBuffers + buffer) * kBoxBytes;
  }
  __device__ uint32_t full(uint32_t stage) const {
    return base + kBarriers + 8 * stage;
  }
  __device__ uint32_t empty(uint32_t stage) const {
    return full(V::kStages + stage);
  }

  __device__ uint32_t ready(uint32_t group, uint32_t buffer) const {
    return full(2 * V::kStages + group * V::kBuffers + buffer);
  }
  __device__ uint32_t filled(uint32_t group, uint32_t buffer) const {
    return ready(group, buffer) + 8 * kNumBuffers;
  }

  // One thread must call it.
  __device__ void init_barriers() const {
    for (uint32_t s = 0; s < V::kStages; ++s) {
      barrier_init(full(s), 1);
      barrier_init(empty(s), kClusterBlocks * kConsumerGroups * kWarpsPerGroup);
    }
    for (uint32_t i = 0; i < kNumBuffers; ++i) {
      barrier_init(ready(0, i), 1);
      barrier_init(filled(0, i), kWarpsPerGroup);
    }
    barrier_init_fence();
  }
};

// The current stage and the parity of its turn.
template <class V>
struct Ring {
  uint32_t stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage < V::kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// The strip of a block's warpgroup.
__device__ inline int32_t strip_of(uint32_t rank, uint32_t group) {
  return static_cast<int32_t>(rank == 0 ? 3 * group : 1 + group);
}

// On the diagonal, where B is A, the strips of A are among the boxes of B.
__device__ inline bool a_is_in_b(const KernelArgs& args, TileBlock block) {
  return args.same && block.row == block.col;
}

// The boxes of k from which on a folded operand is read across k. From there on
// boxes lie above its diagonal block and are not stored, so the other half,
// which is equal, takes their place.
struct Turns {
  int32_t a = 0;
  int32_t b = 0;

  Turns() = default;
  __device__ Turns(const KernelArgs& args, TileBlock block)
      : a(args.a_folded ? first_above(args, block.row) : args.k_boxes),
        b(args.b_folded ? first_above(args, block.col) : args.k_boxes) {}

 private:
  __device__ static int32_t first_above(const KernelArgs& args, int32_t block) {
    return min(args.k_boxes, (block + 1) * (kClusterSide / kBox));
  }
};

// A box of an operand at (`outer` of m or n, `k`).
__device__ inline BoxAt operand_box(bool across, int32_t outer, int32_t k,
                                    int32_t matrix) {
  return across ? BoxAt{outer, k, matrix} : BoxAt{k, outer, matrix};
}

// Prefetches the weights that the epilogue will read to the L2 cache, a share
// of the block's rows per box of k.
__device__ inline void fetch_weights(const KernelArgs& args, TileBlock block,
                                     uint32_t rank, int32_t k_box) {
  constexpr int32_t kLine = 128 / sizeof(float);
  constexpr int32_t kLines = kClusterSide / kLine;
  const int32_t share = (kBlockRows + args.k_boxes - 1) / args.k_boxes;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const float* weights = args.floats.weights[block.matrix];
#pragma unroll 1
  for (int32_t i = lane; i < share * kLines; i += 32) {
    const int32_t inside = k_box * share + i / kLines;
    const int32_t row = block.row * kClusterSide +
                        strip_of(rank, inside / kBox) * kBox + inside % kBox;
    const int32_t col = block.col * kClusterSide + i % kLines * kLine;
    if (inside < kBlockRows && row < args.m && col < args.n)
      fetch_to_l2(weights + skipped_before(args.floats, block.matrix, row) +
                  static_cast<int64_t>(row) * args.n + col);
  }
}

// One warp fetches all operands of its block's share.
template <class V>
class Producer {
 public:
  __device__ Producer(SharedPlan<V> plan, const CUtensorMap* a,
                      const CUtensorMap* b)
      : plan_(plan), a_(a), b_(b), rank_(cluster_rank()) {}

  __device__ void run(const KernelArgs& args, TileBlock block) {
    const bool with_a = !a_is_in_b(args, block);
    const Turns turns(args, block);
    for (int32_t k_box = 0; k_box < args.k_boxes; ++k_box) {
      barrier_wait(plan_.empty(ring_.stage), ring_.parity ^ 1);
      if (threadIdx.x % 32 == 0) {
        barrier_expect(plan_.full(ring_.stage),
                       with_a ? kABytes + kBBytes : kBBytes);
        if (with_a)
          fetch_a(block, k_box * kBox, V::kAAcrossK || k_box >= turns.a);
        fetch_b(block, k_box * kBox, V::kBAcrossK || k_box >= turns.b);
      }
      __syncwarp();
      if constexpr (V::kFloats)
        if (args.floats.scalars != nullptr)
          fetch_weights(args, block, rank_, k_box);
      ring_.advance();
    }
  }

 private:
  __device__ void fetch_a(TileBlock block, int32_t k, bool across) const {
    for (uint32_t i = 0; i < kConsumerGroups; ++i)
      load_box(plan_.a(ring_.stage) + i * kBoxBytes, a_,
               operand_box(across,
                           block.row * kClusterSide + strip_of(rank_, i) * kBox,
                           k, block.matrix),
               plan_.full(ring_.stage));
  }

  // Fetches this block's half of B for both blocks.
  __device__ void fetch_b(TileBlock block, int32_t k, bool across) const {
    constexpr uint32_t kShare = kChunks / kClusterBlocks;
    for (uint32_t i = rank_ * kShare; i < (rank_ + 1) * kShare; ++i)
      load_box_to_all(
          plan_.b(ring_.stage) + i * kBoxBytes, b_,
          operand_box(across,
                      block.col * kClusterSide + static_cast<int32_t>(i) * kBox,
                      k, block.matrix),
          plan_.full(ring_.stage), (1 << kClusterBlocks) - 1);
  }

  SharedPlan<V> plan_;
  const CUtensorMap* a_;
  const CUtensorMap* b_;
  uint32_t rank_;
  Ring<V> ring_;
};

}  // namespace

}  // namespace canzona::linalg
