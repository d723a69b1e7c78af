// The features of this CPU, asked once.
#pragma once

#include <string_view>

namespace canzona {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // with all of avx512
  bool amx_bf16 = false;     // and the kernel lets this process use tiles
};

const CpuFeatures& cpu_features();

// Names what makes products of bf16 (cpu/bf16) faster here than those of fp32:
// "AMX" or "AVX-512 BF16"; empty: nothing does.
std::string_view fast_bf16(const CpuFeatures& features);

}  // namespace canzona
