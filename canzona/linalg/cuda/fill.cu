// Numbers that are made on the GPU.
#include <algorithm>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/number_stream.h"

namespace canzona {
namespace {

// As in base/random.h.
__device__ uint64_t stream_bits(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

struct FillNumbers {
  float* to;
  NumberStream stream;
  NumberRows rows;

  template <int V>
  __device__ void at(int64_t i, int64_t j) const {
    static_assert(V == 1);
    const uint64_t place =
        rows.first + static_cast<uint64_t>(i * rows.stream_stride + j);
    to[i * rows.row_stride + j] =
        stream.number(stream_bits(stream.seed, place));
  }
  __device__ FillNumbers of(int64_t) const { return *this; }
};

}  // namespace

void fill_cuda_numbers(Engine& engine, float* to, const NumberStream& stream,
                       const NumberRows& rows) {
  auto& gpu = static_cast<CudaEngine&>(engine);
  gpu.needs_results();  // seeds differ from step to step: never repeated
  launch_elements<1>(gpu, "fill_numbers", FillNumbers{to, stream, rows},
                     {rows.rows, rows.count, 1}, false);
}

}  // namespace canzona
