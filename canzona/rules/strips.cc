#include "canzona/rules/strips.h"

#include <algorithm>

#include "canzona/base/check.h"

namespace canzona {

std::vector<int64_t> strip_borders(int64_t side, int strips) {
  CANZONA_CHECK(strips >= 1 && strips <= kMostStrips, strips, " strips");
  CANZONA_CHECK(side >= 0, "a side of ", side);
  std::vector<int64_t> borders{0};
  for (int64_t i = 1; i < strips; ++i) {
    // side·i/strips, whose product need not fit 64 bits.
    const int64_t exact = side / strips * i + side % strips * i / strips;
    const int64_t nearest = (exact + kStripUnit / 2) / kStripUnit * kStripUnit;
    borders.push_back(std::min(nearest, side));
  }
  borders.push_back(side);
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
  const std::vector<int64_t> borders = strip_borders(side, strips);
  int64_t widest = 0;
  for (size_t s = 0; s + 1 < borders.size(); ++s)
    widest = std::max(widest, borders[s + 1] - borders[s]);
  return widest;
}

}  // namespace canzona
