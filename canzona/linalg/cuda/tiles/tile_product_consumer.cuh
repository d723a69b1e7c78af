// The consumer of the Hopper kernel's pipeline: the main loop of a multiplying
// warpgroup.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"

namespace canzona::linalg {

// How the Hopper kernel keeps the sums of earlier strips until the tree adds
// them. A warpgroup's sums fill its registers, so earlier ones lie in memory,
// where the L2 cache holds them. There are as many places as the tree needs,
// and each thread uses only numbers of its own in each of them.

namespace {

// This many quads are in flight together; registers do not hold more.
constexpr int kTreeQuads = 4;
constexpr int kQuadsOfColumns = kBox / 8;  // of a thread, in a box of columns

// Returns this thread's first quad in a place. Its next one follows after a
// quad of every other thread that multiplies.
__device__ inline float4* tree_place(const StripTree& tree, int32_t place) {
  constexpr int64_t kThreadsThatAdd = kConsumerGroups * kGroupThreads;
  const int64_t block = int64_t{place} * gridDim.x + blockIdx.x;
  return reinterpret_cast<float4*>(tree.scratch) +
         block * (kSums / 4) * kThreadsThatAdd + threadIdx.x;
}

__device__ inline float4 sum_of(float4 left, float4 right) {
  return {__fadd_rn(left.x, right.x), __fadd_rn(left.y, right.y),
          __fadd_rn(left.z, right.z), __fadd_rn(left.w, right.w)};
}

// Adds the contents of the places from `first` down to `last`, in this order,
// to the first `columns` columns of sums; take(quad, its four numbers) gets the
// results.
template <class Take>
__device__ void add_places(const float (&sums)[kSums], const StripTree& tree,
                           int32_t first, int32_t last, int32_t columns,
                           const Take& take) {
  constexpr int32_t kStride = kConsumerGroups * kGroupThreads;
#pragma unroll
  for (int q = 0; q < kSums / 4; q += kTreeQuads) {
    if (q / kQuadsOfColumns * kBox >= columns) continue;
    float4 values[kTreeQuads];
#pragma unroll
    for (int i = 0; i < kTreeQuads; ++i)
      values[i] = {sums[4 * (q + i)], sums[4 * (q + i) + 1],
                   sums[4 * (q + i) + 2], sums[4 * (q + i) + 3]};
#pragma unroll 1
    for (int32_t place = first; place >= last; --place) {
      const float4* from = tree_place(tree, place) + q * kStride;
      float4 left[kTreeQuads];
#pragma unroll
      for (int i = 0; i < kTreeQuads; ++i) left[i] = __ldcg(from + i * kStride);
#pragma unroll
      for (int i = 0; i < kTreeQuads; ++i)
        values[i] = sum_of(left[i], values[i]);
    }
#pragma unroll
    for (int i = 0; i < kTreeQuads; ++i) take(q + i, values[i]);
  }
}

// Takes the sums of strip s, which is not the last one. Adds the earlier sums
// whose subtrees end with it, as the bits of s say, and keeps the result in the
// tree's place for it.
__device__ inline void keep_in_tree(const float (&sums)[kSums],
                                    const StripTree& tree, int32_t s,
                                    int32_t columns) {
  constexpr int32_t kStride = kConsumerGroups * kGroupThreads;
  const int32_t own = __popc(static_cast<uint32_t>(s));
  const int32_t last = __popc(static_cast<uint32_t>(s) + 1) - 1;
  float4* to = tree_place(tree, last);
  add_places(sums, tree, own - 1, last, columns, [&](int quad, float4 value) {
    __stcg(to + quad * kStride, value);
  });
}

// Does the same for the last strip, where the sums become those of all strips.
__device__ inline void take_from_tree(float (&sums)[kSums],
                                      const StripTree& tree, int32_t columns) {
  const int32_t own = __popc(static_cast<uint32_t>(tree.count) - 1);
  add_places(sums, tree, own - 1, 0, columns, [&](int quad, float4 value) {
    sums[4 * quad] = value.x;
    sums[4 * quad + 1] = value.y;
    sums[4 * quad + 2] = value.z;
    sums[4 * quad + 3] = value.w;
  });
}

// One of the multiplying warpgroups.
template <class V>
class Consumer {
 public:
  __device__ Consumer(SharedPlan<V> plan, uint32_t group)
      : plan_(plan),
        own_a_(group * kBoxBytes),
        strip_(strip_of(cluster_rank(), group)) {}

  __device__ int32_t strip() const { return strip_; }

  // Calls `meanwhile` while the last instructions are in flight. Columns of
  // `sums` that a symmetric result does not need are left unchanged.
  template <class Meanwhile>
  __device__ void sum(float (&sums)[kSums], const KernelArgs& args,
                      TileBlock block, const Meanwhile& meanwhile) {
    const uint32_t a =
        a_is_in_b(args, block) ? kABytes + strip_ * kBoxBytes : own_a_;
    int32_t columns = kClusterSide;
    if ((!V::kFloats || V::kStrips) && args.schedule.triangle &&
        block.row == block.col)
      columns = (strip_ + 1) * kBox;
    if constexpr (V::kStrips) {
      int32_t begin = 0;
      for (int32_t s = 0; s + 1 < args.tree.count; ++s) {
        finish(sums, add(sums, columns, begin, args.tree.ends[s], {}, a));
        keep_in_tree(sums, args.tree, s, columns);
        begin = args.tree.ends[s];
      }
      const uint32_t last_stage =
          add(sums, columns, begin, args.k_boxes, {}, a);
      meanwhile();
      finish(sums, last_stage);
      take_from_tree(sums, args.tree, columns);
    } else {
      const uint32_t last_stage =
          add(sums, columns, 0, args.k_boxes, Turns(args, block), a);
      meanwhile();
      finish(sums, last_stage);
    }
  }

 private:
  __device__ void finish(float (&sums)[kSums], uint32_t last_stage) const {
    wgmma_wait<0>();
    // This tells the compiler that the sums are available only now.
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
    release(last_stage);
  }

  // Returns the stage that the last instructions read.
  __device__ uint32_t add(float (&sums)[kSums], int32_t columns, int32_t begin,
                          int32_t end, const Turns& turns, uint32_t a) {
    if (columns == 64) return add<64>(sums, begin, end, turns, a);
    if (columns == 128) return add<128>(sums, begin, end, turns, a);
    if (columns == 192) return add<192>(sums, begin, end, turns, a);
    return add<256>(sums, begin, end, turns, a);
  }

  template <int kColumns>
  __device__ uint32_t add(float (&sums)[kSums], int32_t begin, int32_t end,
                          const Turns& turns, uint32_t a) {
    uint32_t last_stage = 0;
    int32_t k_box = begin;
    if constexpr (V::kStrips) {
      add_until<kColumns, V::kAAcrossK, V::kBAcrossK>(sums, begin, k_box, end,
                                                      a, last_stage);
      return last_stage;
    }
    add_until<kColumns, V::kAAcrossK, V::kBAcrossK>(
        sums, 0, k_box, min(turns.a, turns.b), a, last_stage);
    if constexpr (!V::kAAcrossK && !V::kBAcrossK)
      add_until<kColumns, false, true>(sums, 0, k_box, turns.a, a, last_stage);
    if constexpr (!V::kAAcrossK)
      add_until<kColumns, true, true>(sums, 0, k_box, end, a, last_stage);
    return last_stage;
  }

  // Begins a new sum at `begin`.
  template <int kColumns, bool kAAcrossK, bool kBAcrossK>
  __device__ void add_until(float (&sums)[kSums], int32_t begin, int32_t& k_box,
                            int32_t end, uint32_t a, uint32_t& last_stage) {
    for (; k_box < end; ++k_box) {
      barrier_wait(plan_.full(ring_.stage), ring_.parity);
      multiply<kColumns, kAAcrossK, kBAcrossK>(sums, a, k_box > begin);
      if (k_box > begin) {
        wgmma_wait<1>();
        release(last_stage);
      }
      last_stage = ring_.stage;
      ring_.advance();
    }
  }

  template <int kColumns, bool kAAcrossK, bool kBAcrossK>
  __device__ void multiply(float (&sums)[kSums], uint32_t a_at,
                           bool add) const {
    using A = OperandAt<kAAcrossK>;
    using B = OperandAt<kBAcrossK>;
    const uint64_t a = A::describe(plan_.a(ring_.stage) + a_at);
    const uint64_t b = B::describe(plan_.b(ring_.stage));
    wgmma_begin();
#pragma unroll
    for (int32_t step = 0; step < kBox / kStep; ++step)
      wgmma<kColumns, V::kBf16, kAAcrossK, kBAcrossK>(
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

}  // namespace canzona::linalg
