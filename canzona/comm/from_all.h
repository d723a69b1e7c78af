// Numbers that every rank has measured, brought together on all of them.
//
//   double slowest = largest_of(world, seconds);
//
// All ranks call, with as many numbers.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "canzona/comm/communicator.h"

namespace canzona {

// By rank.
template <class Number>
std::vector<std::vector<Number>> from_all(Communicator& world,
                                          std::span<const Number> own) {
  const auto ranks = static_cast<size_t>(world.size());
  const std::vector<int64_t> bytes(ranks,
                                   static_cast<int64_t>(own.size_bytes()));
  std::vector<Number> all(ranks * own.size());
  world.all_gather_v(std::as_bytes(own), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "what was measured"});
  std::vector<std::vector<Number>> rows;
  for (size_t r = 0; r < ranks; ++r)
    rows.emplace_back(all.begin() + static_cast<int64_t>(r * own.size()),
                      all.begin() + static_cast<int64_t>((r + 1) * own.size()));
  return rows;
}

inline double largest_of(Communicator& world, double own) {
  double most = own;
  for (const std::vector<double>& row :
       from_all<double>(world, std::span(&own, 1)))
    most = std::max(most, row.front());
  return most;
}

}  // namespace canzona
