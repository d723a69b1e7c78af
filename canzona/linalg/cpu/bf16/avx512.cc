// AVX-512 without bf16 instructions.
#include "canzona/linalg/cpu/bf16/multiply_avx512.h"

namespace canzona::linalg {

const BlockKernel& avx512_kernel() { return kAvx512Kernel; }

}  // namespace canzona::linalg
