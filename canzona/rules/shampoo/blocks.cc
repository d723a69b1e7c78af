#include "canzona/rules/shampoo/blocks.h"

namespace canzona {

BlockedSide::BlockedSide(int64_t length, int64_t max_dim) : length_(length) {
  const int64_t full = length / max_dim;
  const int64_t rest = length % max_dim;
  if (full > 0) kinds_.push_back({full, max_dim});
  if (rest > 0) kinds_.push_back({1, rest});
}

int64_t BlockedSide::num_blocks() const {
  int64_t blocks = 0;
  for (const Kind& kind : kinds_) blocks += kind.count;
  return blocks;
}

Flops BlockedSide::sum_of_squares() const {
  Flops sum;
  for (const Kind& kind : kinds_) {
    sum += Flops(kind.length) * kind.length * kind.count;
  }
  return sum;
}

Flops BlockedSide::sum_of_cubes() const {
  Flops sum;
  for (const Kind& kind : kinds_) {
    sum += Flops(kind.length) * kind.length * kind.length * kind.count;
  }
  return sum;
}

}  // namespace canzona
