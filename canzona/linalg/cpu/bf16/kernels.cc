// Lists the kernels, and which of them this machine supports.
#include <time.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/linalg/cpu/bf16/kernel.h"
#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"

namespace canzona {
using namespace linalg;
namespace {

std::vector<Bf16Kernel> find_usable() {
  std::vector<Bf16Kernel> usable;
  if (cpu_features().amx_bf16) usable.push_back(Bf16Kernel::kAmx);
  if (cpu_features().avx512) usable.push_back(Bf16Kernel::kAvx512);
  usable.push_back(Bf16Kernel::kPortable);
  return usable;
}

}  // namespace

std::span<const Bf16Kernel> usable_bf16_kernels() {
  static const std::vector<Bf16Kernel> usable = find_usable();
  return usable;
}

std::string_view to_string(Bf16Kernel kernel) {
  switch (kernel) {
    case Bf16Kernel::kAmx:
      return "amx";
    case Bf16Kernel::kAvx512:
      return "avx512";
    case Bf16Kernel::kPortable:
      break;
  }
  return "portable";
}

}  // namespace canzona

namespace canzona::linalg {

const BlockKernel& block_kernel([[maybe_unused]] Bf16Kernel kernel) {
#if defined(__x86_64__)
  if (kernel == Bf16Kernel::kAmx) return amx_kernel();
  if (kernel == Bf16Kernel::kAvx512)
    return cpu_features().avx512_bf16 ? avx512_bf16_kernel() : avx512_kernel();
#endif
  return portable_kernel();
}

namespace {

constexpr int64_t kDepth = 32;
constexpr int64_t kPanels = 8;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Fills with different numbers: multiplying the same one repeatedly is faster
// than any real product.
void fill(Bf16* values, int64_t count, uint64_t seed) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = bf16_of_bits(
        std::bit_cast<uint32_t>(uniform_at(seed, static_cast<uint64_t>(i))));
}

// Multiplies every panel on the left with every panel on the right, once.
void multiply_panels(const BlockKernel& kernel, const Bf16* left,
                     const Bf16* right, float* acc) {
  constexpr int64_t kPanel = kDepth * kBlockElements;
  kernel.begin();
  for (int64_t j = 0; j < kPanels; ++j)
    for (int64_t i = 0; i < kPanels; ++i)
      kernel.multiply({.left = left + i * kPanel,
                       .right = right + j * kPanel,
                       .depth = kDepth,
                       .acc = acc},
                      nullptr);
  kernel.end();
}

}  // namespace

double measure_packed_gflops(Bf16Kernel which) {
  const BlockKernel& kernel = block_kernel(which);
  constexpr int64_t kElements = kPanels * kDepth * kBlockElements;
  Arena arena;
  const Arena::Scope scope(arena);
  auto* left = arena.take_array<Bf16>(kElements);
  auto* right = arena.take_array<Bf16>(kElements);
  auto* acc = arena.take_array<float>(kBlockElements);
  fill(left, kElements, 1);
  fill(right, kElements, 2);
  constexpr double kFlops =
      2.0 * kPanels * kPanels * kDepth * kBlock * kBlock * kBlock;
  double best = 1e9;
  double spent = 0;
  for (int round = 0; round < 200 && (round < 3 || spent < 0.2); ++round) {
    const double start = cpu_seconds();
    multiply_panels(kernel, left, right, acc);
    const double seconds = cpu_seconds() - start;
    best = std::min(best, seconds);
    spent += seconds;
  }
  return kFlops / best / 1e9;
}

}  // namespace canzona::linalg
