// The consumer of the Hopper kernel's pipeline: the main loop of a multiplying
// warpgroup.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_pipeline.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_ptx.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_tree.cuh"

namespace canzona {
namespace {

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

  // The sum begins anew at `begin`.
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
}  // namespace canzona
