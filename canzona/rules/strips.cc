#include "canzona/rules/strips.h"

#include <algorithm>

#include "canzona/base/check.h"

namespace canzona::rules {

int64_t strip_border(int64_t side, int strips, int i) {
  CANZONA_CHECK(strips >= 1 && strips <= kMostStrips, strips, " strips");
  CANZONA_CHECK(side >= 0, "a side of ", side);
  if (i == strips) return side;
  // Computes side·i/strips without the product, which may overflow 64 bits.
  const int64_t exact = side / strips * i + side % strips * i / strips;
  const int64_t nearest = (exact + kStripUnit / 2) / kStripUnit * kStripUnit;
  return std::min(nearest, side);
}

int64_t seat_border(int64_t side, int strips, int members, int member) {
  return strip_border(side, strips, strips / members * member);
}

std::vector<int64_t> strip_borders(int64_t side, int strips) {
  std::vector<int64_t> borders;
  for (int i = 0; i <= strips; ++i)
    borders.push_back(strip_border(side, strips, i));
  return borders;
}

int strips_that_fit(int64_t side, int wanted) {
  int strips = 1;
  while (2 * strips <= std::min(wanted, kMostStrips) &&
         side >= kStripUnit * 2 * strips)
    strips *= 2;
  return strips;
}

int64_t widest_strip(int64_t side, int strips) {
  int64_t widest = 0;
  for (int s = 0; s < strips; ++s)
    widest = std::max(widest, strip_border(side, strips, s + 1) -
                                  strip_border(side, strips, s));
  return widest;
}

}  // namespace canzona::rules
