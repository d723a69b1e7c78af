// fp32 results of the Hopper kernel: stored, or applied to weights, straight
// from registers. Two neighbours among the lanes swap halves of what they hold,
// so that each has four numbers in a row.
#pragma once

#include "canzona/linalg/cuda/tile_product_epilogue.cuh"

namespace canzona {
namespace {

template <class V>
class FloatEpilogue {
 public:
  __device__ explicit FloatEpilogue(const KernelArgs& args) : args_(args) {}

  // Before the sums are there: the first weights come to registers.
  __device__ void fetch(GroupAt at) {
    if (args_.floats.scalars == nullptr) return;
    load(weights_, target_of(at), 0);
  }

  __device__ void store(const float (&sums)[kSums], GroupAt at) {
    const Target target = target_of(at);
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
      float4 values[kQuads];
      update(values, &sums[q * kChunkSums]);
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

  // This thread's first numbers in two rows of a matrix, eight rows apart;
  // `whole` where four numbers may be moved at once.
  struct Target {
    float* out[2];
    uint16_t* copy[2];
    int32_t columns[2];  // of the matrix, from here on
    bool whole;

    // How many numbers of a quad are inside the matrix, if positive.
    __device__ int32_t inside(int chunk, int quad) const {
      return columns[quad % 2] - offset(chunk, quad);
    }
  };

  __device__ static constexpr int offset(int chunk, int quad) {
    return chunk * kBox + 2 * kColumnGroup * (quad / 2);
  }

  __device__ Target target_of(GroupAt at) const {
    const int32_t row = at.row + thread_.row(0);
    const int32_t col =
        at.col + kColumnGroup * (thread_.lane % 2) + 4 * (thread_.lane % 4 / 2);
    const int64_t index = static_cast<int64_t>(row) * args_.n + col;
    float* out = args_.floats.out[at.matrix];
    uint16_t* copy = args_.floats.copies == nullptr
                         ? nullptr
                         : args_.floats.copies[at.matrix];
    const auto bits = reinterpret_cast<uintptr_t>(out) |
                      reinterpret_cast<uintptr_t>(copy) * 2;
    const int32_t columns = args_.n - col;
    return {{out + index, out + index + 8 * args_.n},
            {copy + index, copy + index + 8 * args_.n},
            {row < args_.m ? columns : 0, row + 8 < args_.m ? columns : 0},
            args_.n % 4 == 0 && bits % 16 == 0};
  }

  // Loads that the compiler moves up would need registers that are not free.
  __device__ static void keep_order() { asm volatile("" ::: "memory"); }

  // Four numbers in a row each: of quad i the row half is i % 2, and the two
  // column groups are 2·(i / 2) and the next; even lanes take the first.
  __device__ void update(float4 (&values)[kQuads], const float* sums) const {
    const bool odd = thread_.lane % 2 != 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* first = &sums[8 * (i / 2) + 2 * (i % 2)];
      const float* second = first + 4;
      const float x = odd ? first[0] : second[0];
      const float y = odd ? first[1] : second[1];
      const float2 got = {__shfl_xor_sync(~0U, x, 1),
                          __shfl_xor_sync(~0U, y, 1)};
      values[i] = odd ? float4{got.x, got.y, second[0], second[1]}
                      : float4{first[0], first[1], got.x, got.y};
      values[i].x = __fmul_rn(args_.alpha, values[i].x);
      values[i].y = __fmul_rn(args_.alpha, values[i].y);
      values[i].z = __fmul_rn(args_.alpha, values[i].z);
      values[i].w = __fmul_rn(args_.alpha, values[i].w);
    }
  }

  __device__ void apply(float4 (&values)[kQuads],
                        const float4 (&weights)[kQuads]) const {
    const auto scalars = WeightScalars::load(args_.floats.scalars);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      values[i].x = scalars.apply(weights[i].x, values[i].x);
      values[i].y = scalars.apply(weights[i].y, values[i].y);
      values[i].z = scalars.apply(weights[i].z, values[i].z);
      values[i].w = scalars.apply(weights[i].w, values[i].w);
    }
  }

  __device__ static void load(float4 (&to)[kQuads], const Target& from,
                              int chunk) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* data = from.out[i % 2] + offset(chunk, i);
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

  __device__ void store_chunk(const float4 (&values)[kQuads], const Target& to,
                              int chunk) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      float* data = to.out[i % 2] + offset(chunk, i);
      const int32_t inside = to.inside(chunk, i);
      if (to.whole) {
        if (inside > 0) *reinterpret_cast<float4*>(data) = values[i];
      } else {
        if (inside > 0) data[0] = values[i].x;
        if (inside > 1) data[1] = values[i].y;
        if (inside > 2) data[2] = values[i].z;
        if (inside > 3) data[3] = values[i].w;
      }
    }
    if (args_.floats.copies != nullptr) store_copy(values, to, chunk);
  }

  __device__ static void store_copy(const float4 (&values)[kQuads],
                                    const Target& to, int chunk) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      uint16_t* data = to.copy[i % 2] + offset(chunk, i);
      const int32_t inside = to.inside(chunk, i);
      const uint2 bits = {Pair<true>::pack(values[i].x, values[i].y),
                          Pair<true>::pack(values[i].z, values[i].w)};
      if (to.whole) {
        if (inside > 0) *reinterpret_cast<uint2*>(data) = bits;
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
  float4 weights_[kQuads];
};

}  // namespace
}  // namespace canzona
