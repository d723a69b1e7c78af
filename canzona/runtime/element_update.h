// AdamW's tensors: every rank updates its own run of their elements. Matrices
// are among them where AdamW is the plan's rule.
#pragma once

#include <deque>
#include <vector>

#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"

namespace canzona {

struct ElementRates {
  double matrices = 0;
  double others = 0;
};

class ElementUpdate {
 public:
  ElementUpdate(Rank& rank, Publisher& publisher);

  void run(int64_t step, const ElementRates& rates);

 private:
  struct Group {  // of one rule
    int32_t rule = 0;
    Dims dims;
    std::deque<std::vector<Run>> states;
    std::vector<Shard> shards;
  };

  Group& group_of(int32_t rule);

  Rank& rank_;
  Publisher& publisher_;
  std::deque<Group> groups_;
};

}  // namespace canzona
