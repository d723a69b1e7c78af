// AdamW's tensors: every rank updates its own run of their elements. Matrices
// are among them where AdamW is the plan's rule.
#pragma once

#include <map>

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
  Rank& rank_;
  Publisher& publisher_;
  std::map<int32_t, TensorBatch> batches_;  // by rule
};

}  // namespace canzona
