// 16-bit results of the Hopper kernel. They pass through shared memory, box by
// box in a ring of buffers, which the copy engine drains while the next sum is
// under way.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_epilogue.cuh"

namespace canzona {
namespace {

enum class ChunkKind { kNone, kPlain, kMirrored, kOnDiagonal };

template <class V>
class HalfEpilogue {
 public:
  __device__ HalfEpilogue(SharedPlan<V> plan, uint32_t group,
                          const KernelArgs& args, const CUtensorMap* d)
      : args_(args), d_(d), staging_(plan.staging(group)), name_(group + 1) {}

  // Before the sums are there: this thread's part of C comes to registers.
  __device__ void fetch(GroupAt at) {
    if constexpr (V::kAddend)
#pragma unroll
      for (int q = 0; q < kChunks; ++q) load_addend(addend_[q], at, q);
  }

  __device__ void store(const float (&sums)[kSums], GroupAt at) {
#pragma unroll
    for (int q = 0; q < kChunks; ++q)
      if (kind(at, q) != ChunkKind::kNone)
        store_chunk(&sums[q * kChunkSums], addend_[q], at, q);
  }

  __device__ void finish() const {
    if (thread_.lane == 0) stores_wait();
  }

 private:
  __device__ void store_chunk(const float* sums,
                              const uint4 (&addend)[kVectors], GroupAt at,
                              int chunk) {
    const int32_t col = at.chunk_col(chunk);
    uint32_t pairs[kPairs];
    if (at.row == col)
      round<true>(pairs, sums, addend);
    else
      round<false>(pairs, sums, addend);
    const ChunkKind is = kind(at, chunk);
    if (is == ChunkKind::kOnDiagonal) mirror_inside(pairs);
    write(pairs);
    send({col, at.row, at.matrix});
    if (is != ChunkKind::kMirrored) return;
    write_transposed(pairs);
    send({at.row, col, at.matrix});
  }

  __device__ ChunkKind kind(GroupAt at, int chunk) const {
    const int32_t col = at.chunk_col(chunk);
    if (at.row >= args_.m || col >= args_.n) return ChunkKind::kNone;
    if (!args_.schedule.triangle) return ChunkKind::kPlain;
    if (col > at.row) return ChunkKind::kNone;
    return col < at.row ? ChunkKind::kMirrored : ChunkKind::kOnDiagonal;
  }

  // A warp loads its own sixteen rows, four at a time in whole lines.
  __device__ void load_addend(uint4 (&to)[kVectors], GroupAt at,
                              int chunk) const {
    const Tiles& c = args_.addend;
    const int32_t row = at.row + 16 * thread_.warp + thread_.lane / 8;
    const int32_t col = at.chunk_col(chunk) + kColumnGroup * (thread_.lane % 8);
    const auto* data = reinterpret_cast<const uint16_t*>(c.data) +
                       at.matrix * c.matrix_stride + row * c.row_stride + col;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      to[i] = {};
      if (row + 4 * i < args_.m && col < args_.n)
        to[i] = *reinterpret_cast<const uint4*>(data + 4 * i * c.row_stride);
    }
  }

  // From the order of loads to that of sums, by way of the buffer.
  __device__ void reorder_addend(uint32_t (&to)[kPairs],
                                 const uint4 (&from)[kVectors]) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      vector_store(
          buffer() + in_chunk(16 * thread_.warp + thread_.lane / 8 + 4 * i,
                              thread_.lane % 8),
          from[i]);
    __syncwarp();
#pragma unroll
    for (int group = 0; group < kBox / kColumnGroup; group += 2) {
      uint32_t four[4];
      matrices_load(four, place(group));
#pragma unroll
      for (int i = 0; i < 4; ++i) to[2 * group + i] = four[i];
    }
  }

  template <bool kDiagonal>
  __device__ void round(uint32_t (&pairs)[kPairs], const float* sums,
                        const uint4 (&addend)[kVectors]) const {
    if constexpr (V::kAddend) reorder_addend(pairs, addend);
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

  // A chunk on the diagonal: what lies below it goes above it. Every thread
  // reads the transpose at its own places and takes what it needs of it.
  __device__ void mirror_inside(uint32_t (&pairs)[kPairs]) const {
    // Other warps may still have their part of C in the buffer.
    if constexpr (V::kAddend) warpgroup_sync(name_);
    write_transposed(pairs);
    warpgroup_sync(name_);
#pragma unroll
    for (int group = 0; group < kBox / kColumnGroup; group += 2) {
      uint32_t transposed[4];
      matrices_load(transposed, place(group));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t below = thread_.row(i % 2) - thread_.col(group + i / 2);
        const uint32_t own =
            (below >= 0 ? 0xFFFF : 0) | (below >= 1 ? 0xFFFF0000 : 0);
        uint32_t& pair = pairs[2 * group + i];
        pair = (pair & own) | (transposed[i] & ~own);
      }
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
    return staging_ + turn_ % V::kBuffers * kBoxBytes;
  }

  // Of this lane's row of the four 8 x 8 matrices that hold its pairs of
  // column groups `group` and `group` + 1.
  __device__ uint32_t place(int group) const {
    return buffer() + in_chunk(16 * thread_.warp + thread_.lane % 16,
                               group + thread_.lane / 16);
  }

  // From the buffer to D. Who comes past the barrier knows that the buffer is
  // written, and that the next one has been read. Warps take turns in sending:
  // it takes time, and all wait for the slowest.
  __device__ void send(BoxAt at) {
    static_assert(V::kBuffers == 2);
    writes_before_copies();
    if (thread_.leads(turn_ - 1)) stores_wait_read<0>();
    warpgroup_sync(name_);
    if (thread_.leads(turn_)) {
      store_box(d_, at, buffer());
      stores_commit();
    }
    ++turn_;
  }

  const KernelArgs& args_;
  const CUtensorMap* d_;
  uint32_t staging_;
  uint32_t name_;
  uint32_t turn_ = 0;
  ThreadAt thread_;
  uint4 addend_[kChunks][kVectors];
};

}  // namespace
}  // namespace canzona
