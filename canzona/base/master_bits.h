// An fp32 master and the bf16 weight that is its upper half, as bits.
//
//   uint16_t weight = weight_of_master(master);
//   uint16_t remainder = remainder_of_master(master);
//   master_of(weight, remainder) == master
//
// Weights round halves away from zero: between two neighbouring weights there
// are then 65,536 masters, as many as 16 bits tell apart. Rounded to even, an
// even weight would have 65,537. Finite masters and infinities are restored bit
// by bit; a NaN gives a NaN.
//
// Inlined always: kernels for several instruction sets and GPUs share them.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define CANZONA_MASTER_BITS __host__ __device__ __forceinline__ constexpr
#else
#define CANZONA_MASTER_BITS [[gnu::always_inline]] inline constexpr
#endif

namespace canzona {

CANZONA_MASTER_BITS bool is_nan_bits(uint32_t master) {
  return (master & 0x7FFFFFFFU) > 0x7F800000U;
}

// A NaN keeps its upper bits, one of which is set, so that it does not become
// infinite.
CANZONA_MASTER_BITS uint16_t weight_of_master(uint32_t master) {
  return static_cast<uint16_t>(is_nan_bits(master) ? master >> 16 | 0x40U
                                                   : (master + 0x8000U) >> 16);
}

// The signed difference of a master and its weight, 0 for a NaN.
CANZONA_MASTER_BITS uint16_t remainder_of_master(uint32_t master) {
  return static_cast<uint16_t>(is_nan_bits(master) ? 0U : master);
}

CANZONA_MASTER_BITS uint32_t master_of(uint16_t weight, uint16_t remainder) {
  const auto signed_part = static_cast<int16_t>(remainder);
  return (uint32_t{weight} << 16) + static_cast<uint32_t>(int32_t{signed_part});
}

}  // namespace canzona

#undef CANZONA_MASTER_BITS
