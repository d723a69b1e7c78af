// 16-bit results of the Hopper kernel: a warpgroup's sums become boxes in
// shared memory, which its sender passes on (tile_product_sends.cuh) while the
// next sum is computed.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_sends.cuh"

namespace canzona {
namespace {

template <class V>
class HalfEpilogue {
 public:
  __device__ HalfEpilogue(SharedPlan<V> plan, uint32_t group,
                          const KernelArgs& args)
      : plan_(plan), args_(args), group_(group), name_(group + 1) {}

  __device__ void store(const float (&sums)[kSums], GroupAt at) {
#pragma unroll
    for (int q = 0; q < static_cast<int>(kChunks); ++q)
      store_chunk(&sums[q * kChunkSums], at, q);
  }

 private:
  __device__ void store_chunk(const float* sums, GroupAt at, int chunk) {
    const ChunkKind kind = chunk_kind(args_, at, chunk);
    if (kind == ChunkKind::kNone) return;
    uint32_t pairs[kPairs];
    if constexpr (V::kAddend) {
      wait_for_buffer();
      read(pairs);
    }
    if (at.row == at.chunk_col(chunk))
      round<true>(pairs, sums);
    else
      round<false>(pairs, sums);
    if constexpr (!V::kAddend) wait_for_buffer();
    if (kind == ChunkKind::kOnDiagonal) mirror_inside(pairs);
    write(pairs);
    send();
    if (kind != ChunkKind::kMirrored) return;
    wait_for_buffer();
    write_transposed(pairs);
    send();
  }

  template <bool kDiagonal>
  __device__ void round(uint32_t (&pairs)[kPairs], const float* sums) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float first = __fmul_rn(args_.alpha, sums[2 * i]);
      float second = __fmul_rn(args_.alpha, sums[2 * i + 1]);
      if constexpr (V::kAddend) {
        const float2 c = Pair<V::kBf16>::unpack(pairs[i]);
        first = add_scaled(first, args_.beta, c.x);
        second = add_scaled(second, args_.beta, c.y);
      }
      if constexpr (kDiagonal) {
        const int32_t below = thread_.row(i % 2) - thread_.col(i / 2);
        if (below == 0) first = __fadd_rn(first, args_.diagonal);
        if (below == 1) second = __fadd_rn(second, args_.diagonal);
      }
      pairs[i] = Pair<V::kBf16>::pack(first, second);
    }
  }

  // For a chunk on the diagonal: copies the part below it above it. Every
  // thread reads the transpose at its own positions and takes what it needs.
  __device__ void mirror_inside(uint32_t (&pairs)[kPairs]) const {
    // Other warps may still read their part of C from the buffer.
    if constexpr (V::kAddend) warpgroup_sync(name_);
    write_transposed(pairs);
    warpgroup_sync(name_);
    uint32_t transposed[kPairs];
    read(transposed);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int32_t below = thread_.row(i % 2) - thread_.col(i / 2);
      const uint32_t own =
          (below >= 0 ? 0xFFFF : 0) | (below >= 1 ? 0xFFFF0000 : 0);
      pairs[i] = (pairs[i] & own) | (transposed[i] & ~own);
    }
  }

  __device__ void read(uint32_t (&pairs)[kPairs]) const {
#pragma unroll
    for (int group = 0; group < kBox / kColumnGroup; group += 2) {
      uint32_t four[4];
      matrices_load(four, place(group));
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[2 * group + i] = four[i];
    }
  }

  __device__ void write(const uint32_t (&pairs)[kPairs]) const {
#pragma unroll
    for (int group = 0; group < kBox / kColumnGroup; group += 2)
      matrices_store(place(group), &pairs[2 * group]);
  }

  __device__ void write_transposed(const uint32_t (&pairs)[kPairs]) const {
    const int32_t column_group = 2 * thread_.warp + thread_.lane / 8 % 2;
#pragma unroll
    for (int group = 0; group < kBox / kColumnGroup; group += 2) {
      const int32_t row =
          kColumnGroup * (group + thread_.lane / 16) + thread_.lane % 8;
      matrices_store_transposed(buffer() + in_chunk(row, column_group),
                                &pairs[2 * group]);
    }
  }

  __device__ uint32_t buffer() const {
    return plan_.staging(group_, at_.buffer());
  }

  // The address of this lane's row in the four 8 x 8 matrices that hold its
  // pairs of column groups `group` and `group` + 1.
  __device__ uint32_t place(int group) const {
    return buffer() + in_chunk(16 * thread_.warp + thread_.lane % 16,
                               group + thread_.lane / 16);
  }

  __device__ void wait_for_buffer() const {
    barrier_wait(plan_.ready(group_, at_.buffer()), at_.parity());
  }

  __device__ void send() {
    writes_before_copies();
    __syncwarp();
    if (thread_.lane == 0) barrier_arrive(plan_.filled(group_, at_.buffer()));
    ++at_.turn;
  }

  SharedPlan<V> plan_;
  const KernelArgs& args_;
  uint32_t group_;
  uint32_t name_;
  BufferTurn<V> at_;
  ThreadAt thread_;
};

}  // namespace
}  // namespace canzona
