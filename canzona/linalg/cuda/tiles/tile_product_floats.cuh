// fp32 results of the Hopper kernel: stored, or applied to weights. A warp
// passes its sixteen rows through its own part of shared memory, so that half
// of its lanes cover 256 bytes of a row.
#pragma once

#include "canzona/linalg/cuda/tiles/tile_product_epilogue.cuh"

namespace canzona::linalg {
namespace {

template <class V>
class FloatEpilogue {
 public:
  __device__ FloatEpilogue(SharedPlan<V> plan, uint32_t group,
                           const KernelArgs& args)
      : args_(args),
        slab_(plan.staging(group) +
              static_cast<uint32_t>(thread_.warp) * kSlabBytes) {
    // Loaded once, because outside of graphs they are in host memory.
    if (args.floats.scalars != nullptr)
      scalars_ = WeightScalars::load(args.floats.scalars);
  }

  // Loads the first weights into registers before the sums are available.
  __device__ void fetch(GroupAt at) {
    if (args_.floats.scalars == nullptr) return;
    load(weights_, target_of(at), 0);
  }

  __device__ void store(const float (&sums)[kSums], GroupAt at) {
    const Target target = target_of(at);
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
      float4 values[kQuads];
      reorder(values, &sums[q * kChunkSums]);
      if (args_.floats.scalars != nullptr) {
        apply(values, weights_);
        keep_order();
        if (q + 1 < kChunks) load(weights_, target, q + 1);
      }
      store_chunk(values, target, q);
    }
  }

 private:
  static constexpr int kQuads = kChunkSums / 4;
  static constexpr uint32_t kRowBytes = kBox * sizeof(float);
  static constexpr uint32_t kSlabBytes = 16 * kRowBytes;
  static constexpr int kLanesPerRow = kBox / 4;

  // This thread's first four numbers; the next are two rows below. `whole` says
  // that four may be moved at once.
  struct Target {
    int64_t index;
    float* out;
    uint16_t* copy;
    int32_t rows;  // of the matrix, from here on
    int32_t columns;
    bool whole;

    // The number of elements of a quad that are inside the matrix, if positive.
    __device__ int32_t inside(int chunk, int quad) const {
      return rows > 2 * quad ? columns - chunk * kBox : 0;
    }
  };

  __device__ Target target_of(GroupAt at) const {
    const int32_t row =
        at.row + 16 * thread_.warp + thread_.lane / kLanesPerRow;
    const int32_t col = at.col + 4 * (thread_.lane % kLanesPerRow);
    // A warp's rows lie in one group.
    const int64_t skipped = skipped_before(args_.floats, at.matrix, row);
    float* out = args_.floats.weights[at.matrix];
    uint16_t* copy = args_.floats.copies == nullptr
                         ? nullptr
                         : args_.floats.copies[at.matrix];
    const auto bits = reinterpret_cast<uintptr_t>(out) |
                      reinterpret_cast<uintptr_t>(copy) * 2;
    return {skipped + static_cast<int64_t>(row) * args_.n + col,
            out,
            copy,
            args_.m - row,
            args_.n - col,
            args_.n % 4 == 0 && skipped % 4 == 0 && bits % 16 == 0};
  }

  __device__ int64_t index_of(const Target& target, int chunk, int quad) const {
    return target.index + int64_t{2 * quad} * args_.n + chunk * kBox;
  }

  // The address of 16 bytes of a row in the slab: rows that are written
  // together and bytes that are read together are in different banks.
  __device__ uint32_t in_slab(int32_t row, int32_t unit) const {
    return slab_ + static_cast<uint32_t>(row) * kRowBytes +
           static_cast<uint32_t>((unit ^ ((row & 7) << 1)) << 4);
  }

  // Multiplies the sums by alpha and reorders them from the instruction's
  // layout to rows.
  __device__ void reorder(float4 (&values)[kQuads], const float* sums) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      pair_store(in_slab(thread_.lane / 4 + i % 2 * 8,
                         i / 2 * 2 + thread_.lane % 4 / 2) +
                     8 * (thread_.lane % 2),
                 {__fmul_rn(args_.alpha, sums[2 * i]),
                  __fmul_rn(args_.alpha, sums[2 * i + 1])});
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      values[i] = quad_load(in_slab(2 * i + thread_.lane / kLanesPerRow,
                                    thread_.lane % kLanesPerRow));
  }

  // Loads that the compiler hoists would need registers that are not free.
  __device__ static void keep_order() { asm volatile("" ::: "memory"); }

  __device__ void apply(float4 (&values)[kQuads],
                        const float4 (&weights)[kQuads]) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      values[i].x = scalars_.apply(weights[i].x, values[i].x);
      values[i].y = scalars_.apply(weights[i].y, values[i].y);
      values[i].z = scalars_.apply(weights[i].z, values[i].z);
      values[i].w = scalars_.apply(weights[i].w, values[i].w);
    }
  }

  __device__ void load(float4 (&to)[kQuads], const Target& from,
                       int chunk) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* data = from.out + index_of(from, chunk, i);
      const int32_t inside = from.inside(chunk, i);
      to[i] = {};
      if (from.whole) {
        if (inside > 0) to[i] = *reinterpret_cast<const float4*>(data);
      } else {
        if (inside > 0) to[i].x = data[0];
        if (inside > 1) to[i].y = data[1];
        if (inside > 2) to[i].z = data[2];
        if (inside > 3) to[i].w = data[3];
      }
    }
  }

  // Bypasses the cache, because the result is not read soon and operands should
  // stay cached.
  __device__ void store_chunk(const float4 (&values)[kQuads], const Target& to,
                              int chunk) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      float* data = to.out + index_of(to, chunk, i);
      const int32_t inside = to.inside(chunk, i);
      if (to.whole) {
        if (inside > 0) __stcs(reinterpret_cast<float4*>(data), values[i]);
      } else {
        if (inside > 0) data[0] = values[i].x;
        if (inside > 1) data[1] = values[i].y;
        if (inside > 2) data[2] = values[i].z;
        if (inside > 3) data[3] = values[i].w;
      }
    }
    if (args_.floats.copies != nullptr) store_copy(values, to, chunk);
  }

  __device__ void store_copy(const float4 (&values)[kQuads], const Target& to,
                             int chunk) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      uint16_t* data = to.copy + index_of(to, chunk, i);
      const int32_t inside = to.inside(chunk, i);
      const uint2 bits = {weight_pair(values[i].x, values[i].y),
                          weight_pair(values[i].z, values[i].w)};
      if (to.whole) {
        if (inside > 0) __stcs(reinterpret_cast<uint2*>(data), bits);
      } else {
        if (inside > 0) data[0] = static_cast<uint16_t>(bits.x);
        if (inside > 1) data[1] = static_cast<uint16_t>(bits.x >> 16);
        if (inside > 2) data[2] = static_cast<uint16_t>(bits.y);
        if (inside > 3) data[3] = static_cast<uint16_t>(bits.y >> 16);
      }
    }
  }

  const KernelArgs& args_;
  ThreadAt thread_;
  uint32_t slab_;
  WeightScalars scalars_{};
  float4 weights_[kQuads];
};

}  // namespace
}  // namespace canzona::linalg
