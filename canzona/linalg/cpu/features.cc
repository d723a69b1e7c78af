#include "canzona/linalg/cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace canzona::linalg {
namespace {

#if defined(__x86_64__)

// g++ 12 has no names for these two in __builtin_cpu_supports.
bool cpuid_bit(unsigned leaf, unsigned subleaf, int which, int bit) {
  unsigned registers[4] = {};
  if (!__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1],
                         &registers[2], &registers[3]))
    return false;
  return ((registers[which] >> bit) & 1U) != 0;
}

constexpr int kEax = 0;
constexpr int kEdx = 3;

// Tiles are 8 KB of state per thread, so Linux requires permission, once per
// process.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures detect() {
  __builtin_cpu_init();
  CpuFeatures found;
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  found.avx512_bf16 = found.avx512 && cpuid_bit(7, 1, kEax, 5);
  const bool tiles =
      cpuid_bit(7, 0, kEdx, 24) && cpuid_bit(7, 0, kEdx, 22);  // tile, bf16
  found.amx_bf16 = found.avx512_bf16 && tiles && may_use_tiles();
  return found;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string_view fast_bf16(const CpuFeatures& features) {
  if (features.amx_bf16) return "AMX";
  if (features.avx512_bf16) return "AVX-512 BF16";
  return "";
}

}  // namespace canzona::linalg
