#include "canzona/data/permutation.h"

#include <algorithm>
#include <bit>

#include "canzona/base/check.h"
#include "canzona/base/random.h"

namespace canzona {
namespace {
// Four make a network that no test of ours tells from random; six cost little.
constexpr uint64_t kRounds = 6;
}  // namespace

Permutation::Permutation(int64_t n, uint64_t key)
    : n_(static_cast<uint64_t>(n)), key_(key) {
  CANZONA_CHECK(n >= 1 && n <= int64_t{1} << 62, "a permutation of ", n);
  const auto bits = static_cast<int>(std::bit_width(n_ - 1));
  half_bits_ = std::max((bits + 1) / 2, 1);
}

uint64_t Permutation::shuffle(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = bits_at(bits_at(key_, round), right) & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// The walk ends: it stays on the cycle of `i`, which is below n itself.
int64_t Permutation::operator()(int64_t i) const {
  auto value = static_cast<uint64_t>(i);
  CANZONA_CHECK(i >= 0 && value < n_, "number ", i, " of ", n_);
  do value = shuffle(value);
  while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace canzona
