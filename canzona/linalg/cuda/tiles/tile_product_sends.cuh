// 16-bit results leave the Hopper kernel in boxes of 64 x 64, through a ring of
// buffers per warpgroup. The warpgroup writes a box, and a separate warp
// (Sender) hands it to the copy engine, so that no multiplying warp waits for
// the copy or for the other warps. If there is a C, the sender has its box
// fetched into the buffer first.
//
// `ready` tells the warpgroup that a buffer may be written and contains C;
// `filled` tells the sender that all four warps have written it.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_epilogue.cuh"
#include "canzona/linalg/cuda/tiles/tile_product_hopper.h"

namespace canzona {
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

}  // namespace
}  // namespace canzona
