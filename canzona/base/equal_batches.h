// Groups equal values into batches. A batch holds the indices in `kinds` of
// equal values, at most most(kind) of them; batches are ordered by their first
// index.
//
//   const auto at_most_two = [](const Dims&) { return 2; };
//   equal_batches({a, b, a, a}, at_most_two)   // {{0, 2}, {1}, {3}}
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace canzona {

template <class Kind, class Most>
std::vector<std::vector<size_t>> equal_batches(const std::vector<Kind>& kinds,
                                               const Most& most) {
  std::vector<std::vector<size_t>> batches;
  std::map<Kind, size_t> open;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto [at, is_new] = open.try_emplace(kinds[i], batches.size());
    if (is_new ||
        std::cmp_greater_equal(batches[at->second].size(), most(kinds[i]))) {
      at->second = batches.size();
      batches.emplace_back();
    }
    batches[at->second].push_back(i);
  }
  return batches;
}

}  // namespace canzona
