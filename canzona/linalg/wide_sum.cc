#include "canzona/linalg/wide_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "canzona/base/check.h"

namespace canzona {

void check_squares_fit(uint32_t largest_bits, int exponent) {
  CANZONA_CHECK(std::abs(exponent) <= kMostExponent, "exponent ", exponent);
  const float most = std::min(std::ldexp(1.0F, 31 - exponent),
                              std::numeric_limits<float>::max());
  CANZONA_CHECK(largest_bits <= std::bit_cast<uint32_t>(most), "a number of ",
                std::bit_cast<float>(largest_bits), " times 2^", exponent,
                " is above 2^31");
}

}  // namespace canzona
