// Brings numbers of every rank together on all of them.
//
//   double slowest = largest_of(world, seconds);
//
// All ranks must call, with equally many numbers.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"

namespace canzona::comm {

// Returns the numbers of rank 0, rank 1 and so on, joined.
template <class Number>
std::vector<Number> joined_from_all(Communicator& world,
                                    std::span<const Number> own,
                                    const Call& call = {
                                        .label = "what was measured"}) {
  const auto ranks = static_cast<size_t>(world.size());
  const std::vector<int64_t> bytes(ranks,
                                   static_cast<int64_t>(own.size_bytes()));
  std::vector<Number> all(ranks * own.size());
  world.all_gather_v(std::as_bytes(own), bytes,
                     std::as_writable_bytes(std::span(all)), call);
  return all;
}

// Returns the numbers by rank.
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

// Returns one number, or a struct of them, from each rank.
template <class Number>
std::vector<Number> one_from_all(Communicator& world, const Number& own,
                                 const Call& call = {
                                     .label = "what was measured"}) {
  return joined_from_all(world, std::span(&own, 1), call);
}

// Gathers everything on rank 0, by rank; each rank may give any number of
// values. Returns nothing on the other ranks.
template <class Number>
std::vector<std::vector<Number>> to_first(Communicator& world,
                                          std::span<const Number> own,
                                          const Call& call = {
                                              .label = "what rank 0 gets"}) {
  const auto ranks = static_cast<size_t>(world.size());
  constexpr auto kSize = static_cast<int64_t>(sizeof(Number));
  std::vector<int64_t> zeros(ranks, 0), sent(ranks, 0), received(ranks, 0),
      offsets(ranks, 0);
  sent[0] = std::ssize(own) * kSize;
  const auto bytes = one_from_all(world, sent[0], call);
  int64_t end = 0;
  for (size_t r = 0; world.rank() == 0 && r < ranks; ++r) {
    offsets[r] = end;
    received[r] = bytes[r];
    end += bytes[r];
  }
  std::vector<Number> arrived(static_cast<size_t>(end / kSize));
  world.all_to_all_v(
      {std::as_bytes(own), sent, zeros},
      {std::as_writable_bytes(std::span(arrived)), received, offsets}, call);
  std::vector<std::vector<Number>> rows;
  for (size_t r = 0; world.rank() == 0 && r < ranks; ++r) {
    const auto first = arrived.begin() + offsets[r] / kSize;
    rows.emplace_back(first, first + received[r] / kSize);
  }
  return rows;
}

// Returns rank 0's text on all ranks.
inline std::string from_first(Communicator& world, std::string text) {
  int64_t size = std::ssize(text);
  world.broadcast(0, std::as_writable_bytes(std::span(&size, 1)),
                  {.label = "what rank 0 tells"});
  text.resize(static_cast<size_t>(size));
  world.broadcast(0, std::as_writable_bytes(std::span(text)),
                  {.label = "what rank 0 tells"});
  return text;
}

inline double largest_of(Communicator& world, double own) {
  return std::ranges::max(one_from_all(world, own));
}

}  // namespace canzona::comm
