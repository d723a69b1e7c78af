// Sizes of ZeRO as one types them: the inverse of parse_zero.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/plan/zero.h"

namespace canzona {

// "none", "zero1", "zero2", "zero3", "hier:8", "replica:4", or the triple,
// "z1=16,z2=4,z3=2". Wherever several say the same, the first of them.
std::string zero_name(const ZeroSizes& sizes, int32_t homes);

}  // namespace canzona
