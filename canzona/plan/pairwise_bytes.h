// Bytes of collectives that are pairwise exchanges: everybody sends every peer
// that peer's run (reduce-scatter) or its own run (all-gather).
//
//   PairwiseBytes group(ranks, nodes, runs);
//   group.add_all_gather([&](int32_t rank) -> WireBytes& { … }, 4);
//
// Ranks of one node share fast links. Runs are elements, one per rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "canzona/plan/predict.h"

namespace canzona {

// Shares of an all-reduce.
std::vector<int64_t> even_runs(int64_t elements, int64_t ranks);

class PairwiseBytes {
 public:
  using Fields = std::function<WireBytes&(int32_t rank)>;

  PairwiseBytes(std::vector<int32_t> ranks, std::vector<int32_t> nodes,
                std::vector<int64_t> runs);

  void add_reduce_scatter(const Fields& fields, int64_t bytes) const;
  void add_all_gather(const Fields& fields, int64_t bytes) const;

 private:
  struct Node {
    int64_t elements = 0;
    int64_t ranks = 0;
  };

  std::vector<int32_t> ranks_;
  std::vector<int64_t> runs_;
  std::vector<Node> node_;  // of each rank
  int64_t total_ = 0;
};

}  // namespace canzona
