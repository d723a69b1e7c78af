// Which kernels there are, and which of them this machine can run.
#include <span>
#include <string_view>
#include <vector>

#include "canzona/linalg/cpu/bf16/kernel.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/engine.h"

namespace canzona {
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

const BlockKernel& block_kernel([[maybe_unused]] Bf16Kernel kernel) {
#if defined(__x86_64__)
  if (kernel == Bf16Kernel::kAmx) return amx_kernel();
  if (kernel == Bf16Kernel::kAvx512)
    return cpu_features().avx512_bf16 ? avx512_bf16_kernel() : avx512_kernel();
#endif
  return portable_kernel();
}

}  // namespace canzona
