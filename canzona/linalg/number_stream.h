// Numbers that are generated where they are needed, with the same bits on any
// device: element i of a stream depends on the stream and on i alone
// (base/random.h).
//
//   fill_numbers(engine, to, {NumberStream::Kind::kNearlyNormal, seed},
//                {.count = 1000});
//
// They are in the engine's memory, in the order of its work. Only the engine's
// thread may call. sum_hashes() hashes such memory without copying it to the
// host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "canzona/base/rooms.h"

#ifdef __CUDACC__
#define CANZONA_EVERYWHERE __host__ __device__
#else
#define CANZONA_EVERYWHERE
#endif

namespace canzona {
class Engine;
}

namespace canzona::linalg {

struct NumberStream {
  enum class Kind {
    // Slices of two bits, which stand for -3, -1, 1 or 3: the sum of those that
    // the mask selects, times 2^-20.
    kSlices,
    // Numbers of many magnitudes, so that the order of additions shows.
    kManyMagnitudes,
    // Numbers of standard deviation 0.02, the sum of four uniform numbers of 16
    // bits.
    kNearlyNormal,
  };
  Kind kind = Kind::kNearlyNormal;
  uint64_t seed = 0;
  uint64_t mask = 0;   // selects slices
  int32_t offset = 0;  // -3 for each selected slice

  CANZONA_EVERYWHERE static float sum_of_slices(uint64_t bits, uint64_t mask,
                                                int32_t offset) {
    constexpr uint64_t kEveryFour = 0x3333333333333333ULL;
    constexpr uint64_t kEveryEight = 0x0F0F0F0F0F0F0F0FULL;
    uint64_t sums = bits & mask;
    sums = (sums & kEveryFour) + ((sums >> 2) & kEveryFour);
    sums = (sums & kEveryEight) + ((sums >> 4) & kEveryEight);
    const auto sum = static_cast<int>((sums * 0x0101010101010101ULL) >> 56);
    return static_cast<float>(2 * sum + offset) * 0x1p-20F;
  }
  CANZONA_EVERYWHERE static float many_magnitudes(uint64_t bits) {
    const auto upper = static_cast<int64_t>(bits >> 40) - (int64_t{1} << 23);
    const auto exponent = static_cast<uint32_t>(127 - 33 - (bits & 7)) << 23;
    float power = 0;
    memcpy(&power, &exponent, sizeof(power));
    return static_cast<float>(upper) * power;
  }
  CANZONA_EVERYWHERE static float nearly_normal(uint64_t bits) {
    constexpr double kDeviation = 37837.2;  // 2^16 · sqrt(4 / 12)
    constexpr auto kScale = static_cast<float>(0.02 / kDeviation);
    const auto sum =
        static_cast<int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                             (bits >> 32 & 0xFFFF) + (bits >> 48));
    return static_cast<float>(sum - 131070) * kScale;
  }
  // Makes a number from the bits of one element.
  CANZONA_EVERYWHERE float number(uint64_t bits) const {
    if (kind == Kind::kSlices) return sum_of_slices(bits, mask, offset);
    if (kind == Kind::kManyMagnitudes) return many_magnitudes(bits);
    return nearly_normal(bits);
  }
};

// Rows of equal length: row r has the elements of the stream from first +
// r·stream_stride on, at offset r·row_stride.
struct NumberRows {
  uint64_t first = 0;
  int64_t count = 0;  // per row
  int64_t rows = 1;
  int64_t stream_stride = 0;
  int64_t row_stride = 0;
};

void fill_numbers(Engine& engine, float* to, const NumberStream& stream,
                  const NumberRows& rows);

// Two sums, modulo 2^64, over all elements of the rows: with p the bits of
// stream `seed` at the element's number in the stream and b those of the
// element itself, which has `element_bytes` (2 or 4), the first adds the bits
// of stream p at b, the second those of stream ~p.
//
// Returns nothing if the engine is not faster at it than this process;
// otherwise it waits.
using NumberSums = std::array<uint64_t, 2>;
std::optional<NumberSums> sum_hashes(Engine& engine, const std::byte* from,
                                     int64_t element_bytes, uint64_t seed,
                                     const NumberRows& rows);

// Do both in memory of the GPU's engines; in elementwise.cu, or no_cuda.cc.
void fill_cuda_numbers(Engine& engine, float* to, const NumberStream& stream,
                       const NumberRows& rows);
NumberSums sum_cuda_hashes(Engine& engine, const std::byte* from,
                           int64_t element_bytes, uint64_t seed,
                           const NumberRows& rows);

}  // namespace canzona::linalg

#undef CANZONA_EVERYWHERE
