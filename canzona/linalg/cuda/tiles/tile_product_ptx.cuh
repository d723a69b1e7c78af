// Hopper instructions that have no name in C++: barriers in shared memory, the
// copy engine, warpgroups' registers and matrix stores. Addresses are 32-bit
// addresses in shared memory (shared_address).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace canzona {
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

// The same without waiting at all.
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

// The same into every block of the cluster that `mask` names; each block's own
// barrier counts its bytes.
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

// Goes between plain writes to shared memory and the copy engine's reads of
// them.
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
}  // namespace canzona
