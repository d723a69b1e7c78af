// Hopper instructions that have no name in C++: barriers in shared memory, the
// copy engine, warpgroups' registers and matrix stores. Addresses are 32-bit
// addresses in shared memory (shared_address).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace canzona::linalg {
namespace {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers on which arrivals and bytes are counted (mbarrier).
__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals));
}

// Makes initialised barriers known to the other block and the copy engine.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

// Arrives at the barrier at the same address in block `rank` of the cluster. It
// orders no plain writes of other blocks, and none need it: blocks only tell
// each other which memory the copy engine may fill.
__device__ inline void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

__device__ inline bool barrier_passed(uint32_t barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(passed)
      : "r"(barrier), "r"(parity)
      : "memory");
  return passed != 0;
}

// Returns the same without waiting at all.
__device__ inline bool barrier_has_passed(uint32_t barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(passed)
      : "r"(barrier), "r"(parity)
      : "memory");
  return passed != 0;
}

// Waits for the end of the phase of this parity.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (!barrier_passed(barrier, parity)) {
  }
}

__device__ inline void cluster_arrive_and_wait() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Synchronizes the 128 threads of one warpgroup; 0 is __syncthreads.
__device__ inline void warpgroup_sync(uint32_t name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}

// The copy engine. Coordinates are (column, row, matrix).
struct BoxAt {
  int32_t col;
  int32_t row;
  int32_t matrix;
};

__device__ inline void fetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void load_box(uint32_t to, const CUtensorMap* map, BoxAt at,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx"
      "::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(at.col), "r"(at.row), "r"(at.matrix)
      : "memory");
}

// Copies the same box into every block of the cluster that `mask` names; each
// block's own barrier counts its bytes.
__device__ inline void load_box_to_all(uint32_t to, const CUtensorMap* map,
                                       BoxAt at, uint32_t barrier,
                                       uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx"
      "::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(at.col), "r"(at.row), "r"(at.matrix),
      "h"(mask)
      : "memory");
}

__device__ inline void store_box(const CUtensorMap* map, BoxAt at,
                                 uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group"
      " [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from), "r"(at.col), "r"(at.row), "r"(at.matrix)
      : "memory");
}

__device__ inline void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last `kPending` commits of this thread have read what
// they store.
template <int kPending>
__device__ inline void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

__device__ inline void stores_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Must be called between plain writes to shared memory and the copy engine's
// reads of them.
__device__ inline void writes_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void fetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Changes the number of registers of a warpgroup.
template <uint32_t kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <uint32_t kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Moves four 8 x 8 matrices between registers and shared memory; lane l has the
// address of row l % 8 of matrix l / 8.
__device__ inline void matrices_load(uint32_t (&to)[4], uint32_t from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(from)
      : "memory");
}

__device__ inline void matrices_store(uint32_t to, const uint32_t* from) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
          to),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

__device__ inline void matrices_store_transposed(uint32_t to,
                                                 const uint32_t* from) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, "
      "%4};" ::"r"(to),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

__device__ inline void pair_store(uint32_t to, float2 from) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(from.x),
               "f"(from.y)
               : "memory");
}

__device__ inline float4 quad_load(uint32_t from) {
  float4 to;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w)
               : "r"(from)
               : "memory");
  return to;
}

}  // namespace

// The matrix instruction of a warpgroup: sums[64 x n] += A[64 x 16]·B[16 x n]
// for n = 64, 128, 192 and 256, A and B in shared memory, swizzled by 128 bytes
// as the copy engine writes boxes of 64 columns.
//
// A thread holds, of rows r = 16·warp + lane / 4 and r + 8, columns 8·j +
// 2·(lane % 4) and the next: sums[4·j .. 4·j + 1] of row r, then of row r + 8.

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

}  // namespace canzona::linalg
