// What this CPU can do, asked once.
#pragma once

namespace canzona {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // with all of avx512
  bool amx_bf16 = false;     // and the kernel lets this process use tiles
};

const CpuFeatures& cpu_features();

}  // namespace canzona
