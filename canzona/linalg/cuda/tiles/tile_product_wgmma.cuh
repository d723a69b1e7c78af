// The matrix instruction of a warpgroup: sums[64 x n] += A[64 x 16]·B[16 x n]
// for n = 64, 128, 192 and 256, A and B in shared memory, swizzled by 128 bytes
// as the copy engine writes boxes of 64 columns.
//
// A thread holds, of rows r = 16·warp + lane / 4 and r + 8, columns 8·j +
// 2·(lane % 4) and the next: sums[4·j .. 4·j + 1] of row r, then of row r + 8.
#pragma once

#include <cstdint>

namespace canzona {
namespace {

constexpr int kSums = 128;

// Describes the location of an operand. Boxes are [64][64] elements, 8 KB.
// Stored along k, eight rows of m or n are 1 KB and a step of 16 along k is 32
// bytes. Stored across k, eight rows of k are 1 KB, the next 64 of m or n are
// the next box, and a step is 2 KB.
template <bool kAcrossK>
struct OperandAt {
  static constexpr uint32_t kStepBytes = kAcrossK ? 2048 : 32;

  __device__ static uint64_t describe(uint32_t address) {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
    constexpr uint64_t kNextBox = uint64_t{kAcrossK ? 8192 / 16 : 1} << 16;
    return kSwizzle128 | kEightRows | kNextBox | ((address & 0x3FFFF) >> 4);
  }
};

// Must come before the first instruction that uses `sums`.
__device__ inline void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Thirty-two sums: their operand numbers in the instruction, and the sums.
#define CANZONA_PLACES0                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define CANZONA_PLACES1                      \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define CANZONA_PLACES2                      \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define CANZONA_PLACES3                              \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define CANZONA_SUMS8(i)                                                  \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), \
      "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]),            \
      "+f"(sums[i + 7])
#define CANZONA_SUMS32(i)                                        \
  CANZONA_SUMS8(i), CANZONA_SUMS8(i + 8), CANZONA_SUMS8(i + 16), \
      CANZONA_SUMS8(i + 24)
#define CANZONA_WGMMA(n, type, places, a_at, b_at, add_at, a_across_at,       \
                      b_across_at, ...)                                       \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                 \
               ", 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type \
               " {" places "}, " a_at ", " b_at ", add, 1, 1, " a_across_at   \
               ", " b_across_at ";\n}\n"                                      \
               : __VA_ARGS__                                                  \
               : "l"(a), "l"(b), "r"(add), "n"(kAAcrossK), "n"(kBAcrossK))
#define CANZONA_WGMMA64(type)                                            \
  CANZONA_WGMMA("64", type, CANZONA_PLACES0, "%32", "%33", "%34", "%35", \
                "%36", CANZONA_SUMS32(0))
#define CANZONA_WGMMA128(type)                                            \
  CANZONA_WGMMA("128", type, CANZONA_PLACES0 ", " CANZONA_PLACES1, "%64", \
                "%65", "%66", "%67", "%68", CANZONA_SUMS32(0),            \
                CANZONA_SUMS32(32))
#define CANZONA_WGMMA192(type)                                             \
  CANZONA_WGMMA("192", type,                                               \
                CANZONA_PLACES0 ", " CANZONA_PLACES1 ", " CANZONA_PLACES2, \
                "%96", "%97", "%98", "%99", "%100", CANZONA_SUMS32(0),     \
                CANZONA_SUMS32(32), CANZONA_SUMS32(64))
#define CANZONA_WGMMA256(type)                                             \
  CANZONA_WGMMA("256", type,                                               \
                CANZONA_PLACES0 ", " CANZONA_PLACES1 ", " CANZONA_PLACES2  \
                                ", " CANZONA_PLACES3,                      \
                "%128", "%129", "%130", "%131", "%132", CANZONA_SUMS32(0), \
                CANZONA_SUMS32(32), CANZONA_SUMS32(64), CANZONA_SUMS32(96))
#define CANZONA_WGMMA_OF(type)          \
  do {                                  \
    if constexpr (kColumns == 64)       \
      CANZONA_WGMMA64(type);            \
    else if constexpr (kColumns == 128) \
      CANZONA_WGMMA128(type);           \
    else if constexpr (kColumns == 192) \
      CANZONA_WGMMA192(type);           \
    else                                \
      CANZONA_WGMMA256(type);           \
  } while (false)

// The first `kColumns` columns of sums = A·B, plus sums if `add` is not 0.
template <int kColumns, bool kBf16, bool kAAcrossK, bool kBAcrossK>
__device__ inline void wgmma(float (&sums)[kSums], uint64_t a, uint64_t b,
                             uint32_t add) {
  static_assert(kColumns % 64 == 0 && kColumns <= 256);
  if constexpr (kBf16)
    CANZONA_WGMMA_OF("bf16");
  else
    CANZONA_WGMMA_OF("f16");
}

#undef CANZONA_WGMMA_OF
#undef CANZONA_WGMMA256
#undef CANZONA_WGMMA192
#undef CANZONA_WGMMA128
#undef CANZONA_WGMMA64
#undef CANZONA_WGMMA
#undef CANZONA_SUMS32
#undef CANZONA_SUMS8
#undef CANZONA_PLACES3
#undef CANZONA_PLACES2
#undef CANZONA_PLACES1
#undef CANZONA_PLACES0

}  // namespace
}  // namespace canzona
