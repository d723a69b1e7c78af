// Updates where every matrix lies whole on one rank (tp = 1): nothing is
// exchanged. Batches are done in the order of the next forward, so that
// parameters can leave while later ones are computed.
#pragma once

#include <deque>
#include <vector>

#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class LocalUpdate {
 public:
  LocalUpdate(Rank& rank, Publisher& publisher);

  void run(int64_t step, double learning_rate);

 private:
  struct Batch {
    const UpdateBatch* planned = nullptr;
    bool whole = true;          // every member is one run
    std::vector<Shard> shards;  // of the members, if they are whole
    std::vector<Run> owned;
    std::string_view label;
  };

  void add(const UpdateBatch& planned);
  // Members in pieces, such as the q of an interleaved qkv: the pieces follow
  // each other in the order of the matrix's rows.
  void update_pieces(const Step& step, const Batch& batch, const Rule& rule);

  Rank& rank_;
  Publisher& publisher_;
  std::deque<MatrixShards> shards_;  // by kept matrix
  std::vector<Batch> batches_;
};

}  // namespace canzona
