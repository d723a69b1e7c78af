// Updates where every matrix lies whole on one rank (tp = 1): nothing is
// exchanged. Batches are done in the order of the next forward, so that
// parameters can leave while later ones are computed.
#pragma once

#include <deque>

#include "canzona/runtime/publisher.h"
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
  std::deque<Batch> batches_;
};

}  // namespace canzona
