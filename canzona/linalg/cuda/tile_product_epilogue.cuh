// What becomes of a warpgroup's 64 x 256 sums in the Hopper kernel, in chunks
// of 64 columns. 16-bit results pass through shared memory, which the copy
// engine drains while the next sum is under way; fp32 results go straight to
// memory.
#pragma once

#include "canzona/linalg/cuda/tile_product_numbers.cuh"
#include "canzona/linalg/cuda/tile_product_pipeline.cuh"

namespace canzona {
namespace {

constexpr int kPairs = 16;       // of a thread in a chunk
constexpr int kChunkSums = 32;   // the same, counted in numbers
constexpr int kColumnGroup = 8;  // columns that one 8 x 8 matrix has

// A warpgroup's part of the result.
struct GroupAt {
  int32_t row;
  int32_t col;
  int32_t matrix;

  __device__ int32_t chunk_col(int chunk) const { return col + chunk * kBox; }
};

// This thread's place in its warpgroup.
struct ThreadAt {
  int32_t warp = static_cast<int32_t>(threadIdx.x % kGroupThreads / 32);
  int32_t lane = static_cast<int32_t>(threadIdx.x % 32);

  __device__ bool leads() const { return warp == 0 && lane == 0; }
  __device__ int32_t row(int half) const {
    return 16 * warp + lane / 4 + 8 * half;
  }
  __device__ int32_t col(int group) const {
    return kColumnGroup * group + 2 * (lane % 4);
  }
};

// Where 16 bytes lie in a chunk as the copy engine swizzles it.
__device__ inline uint32_t in_chunk(int32_t row, int32_t group) {
  return static_cast<uint32_t>(row * 128 + ((group ^ (row & 7)) << 4));
}

enum class ChunkKind { kNone, kPlain, kMirrored, kOnDiagonal };

// 16-bit results. Boxes go round in a ring of buffers.
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
    for (int q = 0; q < kChunks; ++q) {
      const ChunkKind is = kind(at, q);
      if (is == ChunkKind::kNone) break;
      const int32_t col = at.chunk_col(q);
      uint32_t pairs[kPairs];
      if (at.row == col)
        round<true>(pairs, &sums[q * kChunkSums], addend_[q]);
      else
        round<false>(pairs, &sums[q * kChunkSums], addend_[q]);
      if (is == ChunkKind::kOnDiagonal) mirror_inside(pairs);
      write(pairs);
      send({col, at.row, at.matrix});
      if (is != ChunkKind::kMirrored) continue;
      write_transposed(pairs);
      send({at.row, col, at.matrix});
    }
  }

  __device__ void finish() const {
    if (thread_.leads()) stores_wait();
  }

 private:
  __device__ ChunkKind kind(GroupAt at, int chunk) const {
    const int32_t col = at.chunk_col(chunk);
    if (at.row >= args_.m || col >= args_.n) return ChunkKind::kNone;
    if (!args_.schedule.triangle) return ChunkKind::kPlain;
    if (col > at.row) return ChunkKind::kNone;
    return col < at.row ? ChunkKind::kMirrored : ChunkKind::kOnDiagonal;
  }

  __device__ void load_addend(uint32_t (&to)[kPairs], GroupAt at,
                              int chunk) const {
    const Tiles& c = args_.addend;
    const int32_t row = at.row + thread_.row(0);
    const int32_t col = at.chunk_col(chunk) + thread_.col(0);
    const auto* upper = reinterpret_cast<const uint16_t*>(c.data) +
                        at.matrix * c.matrix_stride + row * c.row_stride + col;
    const uint16_t* lower = upper + 8 * c.row_stride;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int offset = i / 2 * kColumnGroup;
      to[i] = 0;
      if (row + i % 2 * 8 < args_.m && col + offset < args_.n)
        to[i] = *reinterpret_cast<const uint32_t*>(
            (i % 2 == 0 ? upper : lower) + offset);
    }
  }

  template <bool kDiagonal>
  __device__ void round(uint32_t (&pairs)[kPairs], const float* sums,
                        const uint32_t (&addend)[kPairs]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float first = __fmul_rn(args_.alpha, sums[2 * i]);
      float second = __fmul_rn(args_.alpha, sums[2 * i + 1]);
      if constexpr (V::kAddend) {
        const float2 c = Pair<V::kBf16>::unpack(addend[i]);
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

  __device__ uint32_t buffer() const { return staging_ + next_ * kBoxBytes; }

  // Of this lane's row of the four 8 x 8 matrices that hold its pairs of
  // column groups `group` and `group` + 1.
  __device__ uint32_t place(int group) const {
    return buffer() + in_chunk(16 * thread_.warp + thread_.lane % 16,
                               group + thread_.lane / 16);
  }

  // From the buffer to D. Who comes past the barrier knows that the buffer is
  // written, and that the next one has been read.
  __device__ void send(BoxAt at) {
#ifndef CANZONA_X2
    writes_before_copies();
#endif
    if (thread_.leads()) stores_wait_read<V::kBuffers - 2>();
    warpgroup_sync(name_);
    if (thread_.leads()) {
#ifndef CANZONA_X1
      store_box(d_, at, buffer());
#endif
      stores_commit();
    }
    next_ = next_ + 1 == V::kBuffers ? 0 : next_ + 1;
  }

  const KernelArgs& args_;
  const CUtensorMap* d_;
  uint32_t staging_;
  uint32_t name_;
  uint32_t next_ = 0;
  ThreadAt thread_;
  uint32_t addend_[kChunks][kPairs];
};

// fp32 results. Two neighbours among the lanes swap halves of what they hold,
// so that each has four numbers in a row.
template <class V>
class FloatEpilogue {
 public:
  __device__ explicit FloatEpilogue(const KernelArgs& args) : args_(args) {}

  // Before the sums are there: the first weights come to registers.
  __device__ void fetch(GroupAt at) {
    if (args_.floats.scalars == nullptr) return;
    Target target = target_of(at);
    if (!target.whole) target.columns[0] = target.columns[1] = 0;
    load(weights_, target, 0);
  }

  __device__ void store(const float (&sums)[kSums], GroupAt at) {
    const Target target = target_of(at);
    if (!target.whole)
      store_singly(sums, target);
    else if (args_.floats.scalars == nullptr)
      store_product(sums, target);
    else
      store_weights(sums, target);
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

    // Whether a number of a quad is inside the matrix.
    __device__ bool has(int chunk, int quad, int number = 0) const {
      return columns[quad % 2] > offset(chunk, quad) + number;
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

  __device__ void store_product(const float (&sums)[kSums],
                                const Target& target) const {
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
      float4 values[kQuads];
      update(values, &sums[q * kChunkSums]);
      store_chunk(values, target, q);
    }
  }

  // The weights of a chunk come while the one before it is stored.
  __device__ void store_weights(const float (&sums)[kSums],
                                const Target& target) {
    const auto scalars = WeightScalars::load(args_.floats.scalars);
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
      float4 values[kQuads];
      update(values, &sums[q * kChunkSums]);
      apply(values, weights_, scalars);
      keep_order();
      if (q + 1 < kChunks) load(weights_, target, q + 1);
      store_chunk(values, target, q);
    }
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

  __device__ static void apply(float4 (&values)[kQuads],
                               const float4 (&weights)[kQuads],
                               const WeightScalars& scalars) {
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
      to[i] = {};
      if (from.has(chunk, i))
        to[i] = *reinterpret_cast<const float4*>(from.out[i % 2] +
                                                 offset(chunk, i));
    }
  }

  __device__ void store_chunk(const float4 (&values)[kQuads], const Target& to,
                              int chunk) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      if (to.has(chunk, i))
        *reinterpret_cast<float4*>(to.out[i % 2] + offset(chunk, i)) =
            values[i];
    if (args_.floats.copies == nullptr) return;
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      if (to.has(chunk, i))
        *reinterpret_cast<uint2*>(to.copy[i % 2] + offset(chunk, i)) = {
            Pair<true>::pack(values[i].x, values[i].y),
            Pair<true>::pack(values[i].z, values[i].w)};
  }

  // Where rows do not begin on 16 bytes: number by number.
  __device__ void store_singly(const float (&sums)[kSums],
                               const Target& target) const {
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
      float4 values[kQuads];
      update(values, &sums[q * kChunkSums]);
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        store_single(values[i].x, target, q, i, 0);
        store_single(values[i].y, target, q, i, 1);
        store_single(values[i].z, target, q, i, 2);
        store_single(values[i].w, target, q, i, 3);
      }
    }
  }

  __device__ void store_single(float value, const Target& to, int chunk,
                               int quad, int number) const {
    if (!to.has(chunk, quad, number)) return;
    const int at = offset(chunk, quad) + number;
    float& out = to.out[quad % 2][at];
    if (args_.floats.scalars != nullptr)
      value = WeightScalars::load(args_.floats.scalars).apply(out, value);
    out = value;
    if (args_.floats.copies != nullptr)
      to.copy[quad % 2][at] = static_cast<uint16_t>(Pair<true>::pack(value, 0));
  }

  const KernelArgs& args_;
  ThreadAt thread_;
  float4 weights_[kQuads];
};

}  // namespace
}  // namespace canzona
