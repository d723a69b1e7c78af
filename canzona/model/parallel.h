// A rank's share of the decoder, and the ranks it computes with.
//
// With tp, q, k, v, gate and up are cut by rows, o and down by columns,
// embedding and head by rows of the vocabulary. With ep, every rank has its own
// tokens and some of the experts. With pp, a rank has consecutive layers, the
// first stage the embedding, the last one the final norm and the head.
#pragma once

#include <cstdint>
#include <string_view>

#include "canzona/comm/communicator.h"

namespace canzona {

struct Parallel {
  Communicator* tp = nullptr;  // null: not cut
  Communicator* ep = nullptr;  // null: all experts are on this rank
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  bool has_embedding = true;
  bool has_head = true;
  // The sizes for predicting memory before there are ranks.
  int planned_tp = 1;
  int planned_ep = 1;

  int tp_size() const { return tp == nullptr ? planned_tp : tp->size(); }
  int tp_rank() const { return tp == nullptr ? 0 : tp->rank(); }
  int ep_size() const { return ep == nullptr ? planned_ep : ep->size(); }
  int ep_rank() const { return ep == nullptr ? 0 : ep->rank(); }
};

// Sums and maxima over the ranks that share a layer; no-ops for a single rank.
// The time is counted.
//
//   TpGroup<float> tp(parallel.tp);
//   tp.add(delta, tokens * hidden, "attention");
//
// One thread at a time. Nothing is allocated after construction.

template <class Real>
class TpGroup {
 public:
  // Throws UsageError for several ranks with fp64: there are only fp32 sums.
  explicit TpGroup(Communicator* ranks);

  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  int rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  double seconds() const { return seconds_; }

  void add(Real* data, int64_t count, std::string_view label);
  // `scratch` must hold `count` numbers.
  void largest(Real* data, int64_t count, int64_t* scratch,
               std::string_view label);

 private:
  void reduce(Reduction reduction, void* data, int64_t bytes,
              std::string_view label);

  Communicator* ranks_;
  double seconds_ = 0;
};

}  // namespace canzona
