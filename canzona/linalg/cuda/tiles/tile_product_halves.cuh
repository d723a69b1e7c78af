// 16-bit results of the Hopper kernel: a warpgroup writes its sums to boxes in
// shared memory, and its sender passes them on while the next sum is computed.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_epilogue.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_hopper.h"

namespace canzona::linalg {

// 16-bit results leave the Hopper kernel in boxes of 64 x 64, through a ring of
// buffers per warpgroup. The warpgroup writes a box, and a separate warp
// (Sender) hands it to the copy engine, so that no multiplying warp waits for
// the copy or for the other warps. If there is a C, the sender has its box
// fetched into the buffer first.
//
// `ready` tells the warpgroup that a buffer may be written and contains C;
// `filled` tells the sender that all four warps have written it.

namespace {

enum class ChunkKind { kNone, kPlain, kMirrored, kOnDiagonal };

__device__ inline ChunkKind chunk_kind(const KernelArgs& args, GroupAt at,
                                       int chunk) {
  const int32_t col = at.chunk_col(chunk);
  if (at.row >= args.m || col >= args.n) return ChunkKind::kNone;
  if (!args.schedule.triangle) return ChunkKind::kPlain;
  if (col > at.row) return ChunkKind::kNone;
  if (col == at.row) return ChunkKind::kOnDiagonal;
  const bool above_is_stored =
      !args.d_folded || at.row / kClusterSide == at.col / kClusterSide;
  return above_is_stored ? ChunkKind::kMirrored : ChunkKind::kPlain;
}

// A warpgroup's turns in its ring of buffers.
template <class V>
struct BufferTurn {
  uint32_t turn = 0;

  __device__ uint32_t buffer() const { return turn % V::kBuffers; }
  __device__ uint32_t parity() const { return turn / V::kBuffers & 1; }
};

// The boxes that a warpgroup sends, in order, over all of its blocks.
class Boxes {
 public:
  __device__ Boxes(const KernelArgs& args, int32_t strip)
      : args_(args), strip_(strip) {
    enter();
    find();
  }

  __device__ bool done() const { return index_ >= args_.schedule.num_blocks; }
  // True for a box above the diagonal, which is a copy of the previous one.
  __device__ bool is_mirrored() const { return mirrored_; }
  __device__ BoxAt place() const {
    const int32_t col = at_.chunk_col(chunk_);
    return mirrored_ ? BoxAt{at_.row, col, at_.matrix}
                     : BoxAt{col, at_.row, at_.matrix};
  }

  __device__ void advance() {
    if (!mirrored_ && chunk_kind(args_, at_, chunk_) == ChunkKind::kMirrored) {
      mirrored_ = true;
      return;
    }
    mirrored_ = false;
    ++chunk_;
    find();
  }

 private:
  __device__ void enter() {
    index_ = args_.schedule.index(
        static_cast<int32_t>(blockIdx.x / kClusterBlocks), turn_);
    const TileBlock block = args_.schedule.block(index_);
    at_ = {block.row * kClusterSide + strip_ * kBox, block.col * kClusterSide,
           block.matrix};
    chunk_ = 0;
  }

  // Finds the next chunk to send, from this one on.
  __device__ void find() {
    while (!done()) {
      for (; chunk_ < static_cast<int>(kChunks); ++chunk_)
        if (chunk_kind(args_, at_, chunk_) != ChunkKind::kNone) return;
      ++turn_;
      enter();
    }
  }

  const KernelArgs& args_;
  int32_t strip_;
  int32_t turn_ = 0;
  int32_t index_ = 0;
  GroupAt at_{};
  int chunk_ = 0;
  bool mirrored_ = false;
};

// One thread serves one warpgroup.
template <class V>
class Sender {
 public:
  __device__ Sender(SharedPlan<V> plan, uint32_t group, const KernelArgs& args,
                    const TileMaps& maps)
      : plan_(plan),
        group_(group),
        maps_(maps),
        now_(args, strip_of(cluster_rank(), group)),
        ahead_(now_) {}

  __device__ void run() {
    for (uint32_t i = 0; i < V::kBuffers; ++i) make_ready();
    while (!now_.done()) {
      barrier_wait(plan_.filled(group_, at_.buffer()), at_.parity());
      store_box(&maps_.d, now_.place(), plan_.staging(group_, at_.buffer()));
      stores_commit();
      now_.advance();
      ++at_.turn;
      make_read_ones_ready();
    }
    stores_wait();
  }

 private:
  // If the next box is ready already, does not wait for the engine to read the
  // last one.
  __device__ void make_read_ones_ready() {
    if (!now_.done() &&
        barrier_has_passed(plan_.filled(group_, at_.buffer()), at_.parity())) {
      stores_wait_read<1>();
      while (free_.turn + 1 < at_.turn + V::kBuffers) make_ready();
    } else {
      stores_wait_read<0>();
      while (free_.turn < at_.turn + V::kBuffers) make_ready();
    }
  }

  // Makes the next buffer ready, which is not in use.
  __device__ void make_ready() {
    const uint32_t ready = plan_.ready(group_, free_.buffer());
    if (V::kAddend && !ahead_.done() && !ahead_.is_mirrored()) {
      barrier_expect(ready, kBoxBytes);
      load_box(plan_.staging(group_, free_.buffer()), &maps_.c, ahead_.place(),
               ready);
    } else {
      barrier_arrive(ready);
    }
    if (V::kAddend && !ahead_.done()) ahead_.advance();
    ++free_.turn;
  }

  SharedPlan<V> plan_;
  uint32_t group_;
  const TileMaps& maps_;
  Boxes now_;    // at turn at_
  Boxes ahead_;  // at turn free_
  BufferTurn<V> at_;
  BufferTurn<V> free_;
};

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

}  // namespace canzona::linalg
