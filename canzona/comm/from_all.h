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

// Those of rank 0, of rank 1, …
template <class Number>
std::vector<Number> joined_from_all(Communicator& world,
                                    std::span<const Number> own) {
  const auto ranks = static_cast<size_t>(world.size());
  const std::vector<int64_t> bytes(ranks,
                                   static_cast<int64_t>(own.size_bytes()));
  std::vector<Number> all(ranks * own.size());
  world.all_gather_v(std::as_bytes(own), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "what was measured"});
  return all;
}

// By rank.
template <class Number>
std::vector<std::vector<Number>> from_all(Communicator& world,
                                          std::span<const Number> own) {
  const std::vector<Number> all = joined_from_all(world, own);
  std::vector<std::vector<Number>> rows;
  for (int64_t r = 0; r < world.size(); ++r)
    rows.emplace_back(all.begin() + r * std::ssize(own),
                      all.begin() + (r + 1) * std::ssize(own));
  return rows;
}

// One number, or a struct of them, of each rank.
template <class Number>
std::vector<Number> one_from_all(Communicator& world, const Number& own) {
  return joined_from_all(world, std::span(&own, 1));
}

inline double largest_of(Communicator& world, double own) {
  return std::ranges::max(one_from_all(world, own));
}

}  // namespace canzona
