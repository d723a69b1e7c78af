// The main loop of the Hopper kernel. A cluster of two blocks computes 256 x
// 256 elements: four strips of 64 rows, one for each of the blocks' two
// consumer warpgroups. A block fetches its own strips of A and half of B, which
// the copy engine delivers to both blocks, so that B leaves the L2 cache once
// for two.
//
// On the diagonal of a symmetric result strip s needs only s + 1 of the four
// boxes of 64 columns. The first block has strips 0 and 3, the second 1 and 2,
// so that both have the same work.
//
// Stages go round in a ring. `full` counts the bytes that have come to this
// block; `empty` counts the warps of both blocks that are done with a stage,
// since either block's producer writes into both.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_schedule.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_task.h"
#include "canzona/linalg/cuda/tiles/tile_product_wgmma.cuh"

namespace canzona {
namespace {

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

// What one instance of the kernel is made for.
template <bool kBf16_, bool kAAcrossK_, bool kBAcrossK_, Result kResult>
struct Variant {
  static constexpr bool kBf16 = kBf16_;
  static constexpr bool kAAcrossK = kAAcrossK_;
  static constexpr bool kBAcrossK = kBAcrossK_;
  static constexpr bool kFloats = kResult == Result::kFloats;
  static constexpr bool kAddend = kResult == Result::kHalvesWithAddend;
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
  Tiles addend;  // C
  bool same;     // B is A, stored the same way
  TileFloats floats;
};

// Places in shared memory. Boxes come first: they want 1 KB of alignment.
template <class V>
struct SharedPlan {
  uint32_t base;

  static constexpr uint32_t kStaging = V::kStages * kStageBytes;
  static constexpr uint32_t kStagingBytes =
      kConsumerGroups * V::kBuffers * kBoxBytes;
  static constexpr uint32_t kBarriers = kStaging + kStagingBytes;
  static constexpr uint32_t kNumBarriers = 2 * V::kStages;
  static constexpr uint32_t kBytes = kBarriers + 8 * kNumBarriers;

  __device__ uint32_t a(uint32_t stage) const {
    return base + stage * kStageBytes;
  }
  __device__ uint32_t b(uint32_t stage) const { return a(stage) + kABytes; }
  __device__ uint32_t staging(uint32_t group) const {
    return base + kStaging + group * V::kBuffers * kBoxBytes;
  }
  __device__ uint32_t full(uint32_t stage) const {
    return base + kBarriers + 8 * stage;
  }
  __device__ uint32_t empty(uint32_t stage) const {
    return full(V::kStages + stage);
  }

  // By one thread.
  __device__ void init_barriers() const {
    for (uint32_t s = 0; s < V::kStages; ++s) {
      barrier_init(full(s), 1);
      barrier_init(empty(s), kClusterBlocks * kConsumerGroups * kWarpsPerGroup);
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

// Strips of A on the diagonal are among the boxes of B where B is A.
__device__ inline bool a_is_in_b(const KernelArgs& args, TileBlock block) {
  return args.same && block.row == block.col;
}

// A box of an operand at (`outer` of m or n, `k`).
template <bool kAcrossK>
__device__ BoxAt operand_box(int32_t outer, int32_t k, int32_t matrix) {
  return kAcrossK ? BoxAt{outer, k, matrix} : BoxAt{k, outer, matrix};
}

// Fetches weights that the epilogue will read into the L2 cache, a share of
// the block's rows per box of k.
__device__ inline void fetch_weights(const KernelArgs& args, TileBlock block,
                                     uint32_t rank, int32_t k_box) {
  constexpr int32_t kLine = 128 / sizeof(float);
  constexpr int32_t kLines = kClusterSide / kLine;
  const int32_t share = (kBlockRows + args.k_boxes - 1) / args.k_boxes;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const float* weights = args.floats.out[block.matrix];
#pragma unroll 1
  for (int32_t i = lane; i < share * kLines; i += 32) {
    const int32_t inside = k_box * share + i / kLines;
    const int32_t row = block.row * kClusterSide +
                        strip_of(rank, inside / kBox) * kBox + inside % kBox;
    const int32_t col = block.col * kClusterSide + i % kLines * kLine;
    if (inside < kBlockRows && row < args.m && col < args.n)
      fetch_to_l2(weights + static_cast<int64_t>(row) * args.n + col);
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
    for (int32_t k_box = 0; k_box < args.k_boxes; ++k_box) {
      barrier_wait(plan_.empty(ring_.stage), ring_.parity ^ 1);
      if (threadIdx.x % 32 == 0) {
        barrier_expect(plan_.full(ring_.stage),
                       with_a ? kABytes + kBBytes : kBBytes);
        if (with_a) fetch_a(block, k_box * kBox);
        fetch_b(block, k_box * kBox);
      }
      __syncwarp();
      if constexpr (V::kFloats)
        if (args.floats.scalars != nullptr)
          fetch_weights(args, block, rank_, k_box);
      ring_.advance();
    }
  }

 private:
  __device__ void fetch_a(TileBlock block, int32_t k) const {
    for (uint32_t i = 0; i < kConsumerGroups; ++i)
      load_box(plan_.a(ring_.stage) + i * kBoxBytes, a_,
               operand_box<V::kAAcrossK>(
                   block.row * kClusterSide + strip_of(rank_, i) * kBox, k,
                   block.matrix),
               plan_.full(ring_.stage));
  }

  // This block's half of B, to both blocks.
  __device__ void fetch_b(TileBlock block, int32_t k) const {
    constexpr uint32_t kShare = kChunks / kClusterBlocks;
    for (uint32_t i = rank_ * kShare; i < (rank_ + 1) * kShare; ++i)
      load_box_to_all(
          plan_.b(ring_.stage) + i * kBoxBytes, b_,
          operand_box<V::kBAcrossK>(
              block.col * kClusterSide + static_cast<int32_t>(i) * kBox, k,
              block.matrix),
          plan_.full(ring_.stage), (1 << kClusterBlocks) - 1);
  }

  SharedPlan<V> plan_;
  const CUtensorMap* a_;
  const CUtensorMap* b_;
  uint32_t rank_;
  Ring<V> ring_;
};

// One of the warpgroups that multiply.
template <class V>
class Consumer {
 public:
  __device__ Consumer(SharedPlan<V> plan, uint32_t group)
      : plan_(plan),
        own_a_(group * kBoxBytes),
        strip_(strip_of(cluster_rank(), group)) {}

  __device__ int32_t strip() const { return strip_; }

  // Calls `meanwhile` while the last instructions are under way. Columns of
  // `sums` that a symmetric result does not need are left as they were.
  template <class Meanwhile>
  __device__ void sum(float (&sums)[kSums], const KernelArgs& args,
                      TileBlock block, const Meanwhile& meanwhile) {
    const uint32_t a =
        a_is_in_b(args, block) ? kABytes + strip_ * kBoxBytes : own_a_;
    int32_t columns = kClusterSide;
    if (!V::kFloats && args.schedule.triangle && block.row == block.col)
      columns = (strip_ + 1) * kBox;
    uint32_t last_stage = 0;
    if (columns == 64)
      last_stage = add<64>(sums, args.k_boxes, a);
    else if (columns == 128)
      last_stage = add<128>(sums, args.k_boxes, a);
    else if (columns == 192)
      last_stage = add<192>(sums, args.k_boxes, a);
    else
      last_stage = add<256>(sums, args.k_boxes, a);
    meanwhile();
    wgmma_wait<0>();
    // Nothing else tells the compiler that the sums are there only now.
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
    release(last_stage);
  }

 private:
  // Returns the stage that the last instructions read.
  template <int kColumns>
  __device__ uint32_t add(float (&sums)[kSums], int32_t k_boxes, uint32_t a) {
    uint32_t last_stage = 0;
    for (int32_t k_box = 0; k_box < k_boxes; ++k_box) {
      barrier_wait(plan_.full(ring_.stage), ring_.parity);
      multiply<kColumns>(sums, a, k_box > 0);
      if (k_box > 0) {
        wgmma_wait<1>();
        release(last_stage);
      }
      last_stage = ring_.stage;
      ring_.advance();
    }
    return last_stage;
  }

  template <int kColumns>
  __device__ void multiply(float (&sums)[kSums], uint32_t a_at,
                           bool add) const {
    using A = OperandAt<V::kAAcrossK>;
    using B = OperandAt<V::kBAcrossK>;
    const uint64_t a = A::describe(plan_.a(ring_.stage) + a_at);
    const uint64_t b = B::describe(plan_.b(ring_.stage));
    wgmma_begin();
#pragma unroll
    for (int32_t step = 0; step < kBox / kStep; ++step)
      wgmma<kColumns, V::kBf16, V::kAAcrossK, V::kBAcrossK>(
          sums, a + step * A::kStepBytes / 16, b + step * B::kStepBytes / 16,
          add || step > 0);
    wgmma_commit();
  }

  __device__ void release(uint32_t stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kClusterBlocks) barrier_arrive_at(plan_.empty(stage), lane);
    __syncwarp();
  }

  SharedPlan<V> plan_;
  uint32_t own_a_;
  int32_t strip_;
  Ring<V> ring_;
};

}  // namespace
}  // namespace canzona
