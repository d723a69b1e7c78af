#include "canzona/plan/zero_name.h"

#include "canzona/base/text.h"

namespace canzona {

std::string zero_name(const ZeroSizes& sizes, int32_t homes) {
  const ZeroSizes z = with_states(sizes, homes);
  for (const char* name : {"none", "zero1", "zero2", "zero3"}) {
    if (parse_zero(name, homes) == z) return name;
  }
  if (z.z2 != z.z3) return to_string(z);
  if (z.z1 == homes) return cat("hier:", z.z2);
  return z.z1 == z.z2 ? cat("replica:", z.z2) : to_string(z);
}

}  // namespace canzona
