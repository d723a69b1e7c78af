// The features of this CPU, queried once.
#pragma once

#include <string_view>

#include "canzona/base/rooms.h"

namespace canzona::linalg {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // with all of avx512
  bool amx_bf16 = false;     // and the kernel allows tiles
};

const CpuFeatures& cpu_features();

// Returns what makes bf16 products (cpu/bf16) faster here than fp32 ones: "AMX"
// or "AVX-512 BF16"; empty if nothing does.
std::string_view fast_bf16(const CpuFeatures& features);

}  // namespace canzona::linalg
