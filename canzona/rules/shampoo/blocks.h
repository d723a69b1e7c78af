// Shampoo's blocks. A matrix with a long side is cut into blocks, each with
// factors of its own. There may be far more blocks than one could walk over,
// but only up to two lengths along a side: full blocks, and one shorter block
// at the end. So everything is counted by kinds of length.
//
//   BlockedSide(5, 2): lengths 2, 2, 1; kinds {2 x 2, 1 x 1}; sum_of_squares 9
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/base/units.h"

namespace canzona {

class BlockedSide {
 public:
  struct Kind {
    int64_t count;
    int64_t length;
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  BlockedSide(int64_t length, int64_t max_dim);

  int64_t num_blocks() const;
  int64_t length() const { return length_; }
  // Full blocks first, then the rest.
  const std::vector<Kind>& kinds() const { return kinds_; }
  // Over all blocks; checked.
  Flops sum_of_squares() const;
  Flops sum_of_cubes() const;

 private:
  int64_t length_;
  std::vector<Kind> kinds_;
};

}  // namespace canzona
