// Numbers below n in an order that looks random, without a list of them: a
// Feistel network over the next power of four, walked until it is below n.
//
//   Permutation order(1'000'000'000, seed);
//   int64_t first = order(0);
//
// Every number below n comes once. The same on every machine. Thread-safe.
#pragma once

#include <cstdint>

namespace canzona {

class Permutation {
 public:
  // n from 1 to 2^62.
  Permutation(int64_t n, uint64_t key);

  int64_t operator()(int64_t i) const;  // 0 ≤ i < n

 private:
  uint64_t shuffle(uint64_t value) const;

  uint64_t n_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace canzona
