// Updates that need no exchange: matrices that are whole on one rank (tp = 1),
// and AdamW's tensors, of which every rank updates its own run of elements.
// Batches of matrices are updated in the order of the next forward, so that
// parameters can be sent while later ones are computed. If AdamW is the plan's
// rule, matrices are among AdamW's tensors.
#pragma once

#include <deque>
#include <map>

#include "canzona/runtime/bucket_traffic.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class LocalUpdate {
 public:
  LocalUpdate(Rank& rank, Publisher& publisher);

  void run(int64_t step, double learning_rate);

 private:
  struct Batch {
    Batch(Rank& rank, const UpdateBatch& planned);

    const UpdateBatch& planned;
    const RuleSet::Entry& entry;
    TensorBatch tensors;
    std::string_view label;
  };

  Rank& rank_;
  Publisher& publisher_;
  ShownEntry shown_;
  std::deque<Batch> batches_;
};

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
  ShownEntry shown_;
  std::map<int32_t, TensorBatch> batches_;  // by rule
};

}  // namespace canzona
