// Solves small cases optimally by branch and bound.
//
// Items of one tensor share a home, and a home keeps at most `cap` elements of
// a bucket; the objective is that of Bundles.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace canzona {

inline constexpr size_t kExactItems = 14;
inline constexpr size_t kExactRanks = 4;

struct ExactItem {
  std::vector<int64_t> load;
  int32_t tensor = 0;  // items with the same number share a home
  int32_t bucket = 0;
  int64_t elements = 0;  // of the tensor's shard, counted once per tensor
  int32_t zone = -1;     // ranks that may own it; -1: all
};

struct ExactCase {
  std::vector<ExactItem> items;
  std::vector<int64_t> steps;
  std::vector<int32_t> zones;  // per rank
  std::vector<int32_t> homes;  // per rank
  std::vector<int64_t> caps;   // per bucket
};

// Returns the rank of each item; nullopt if no assignment respects the caps.
std::optional<std::vector<int32_t>> solve_exactly(const ExactCase& c);

}  // namespace canzona
