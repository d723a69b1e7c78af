// Routing decides which experts a token goes to and with what weights: those
// with the largest probabilities (softmax of the router's logits), divided by
// their sum.
//
//   Routing<float> routing = take_routing<float>(cutter, sizes);
//   engine.product(…routing.probabilities…);    // the logits
//   route(sizes, routing);
//   …
//   route_backward(sizes, coefficient, routing, dweights, dlogits);
//
// The balance loss of a sequence is E · Σ_e f_e · P_e: f_e the share of its
// pairs that go to expert e, a constant to backward, P_e the mean of e's
// probability over its tokens. It is 1 if the load is even.
//
// The arrays belong to the caller and nothing is allocated. Sums have a fixed
// order, so that equal logits give equal bits on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/model/decoder_config.h"

namespace canzona {

template <class Real>
struct Routing {
  Real* probabilities = nullptr;  // tokens x experts; logits before route()
  int32_t* chosen = nullptr;      // tokens x choices, most likely first
  Real* weights = nullptr;        // tokens x choices
  // The positions of pairs sorted by expert, then by token.
  int64_t* places = nullptr;
  int64_t* counts = nullptr;   // pairs of each expert
  int64_t* cursors = nullptr;  // by expert; used inside route() only
  double* shares = nullptr;    // sequences x experts: f
  double* balance = nullptr;   // one number, the mean over the sequences
};

template <class Real>
Routing<Real> take_routing(Cutter& cutter, const ExpertSizes& sizes);

// In a tie the lower expert comes first. Numbers that are not finite give
// useless weights, but still distinct experts.
template <class Real>
void route(const ExpertSizes& sizes, const Routing<Real>& routing);

// Computes the gradient of the logits from that of the weights (tokens x
// choices) and `coefficient` times the balance loss.
template <class Real>
void route_backward(const ExpertSizes& sizes, double coefficient,
                    const Routing<Real>& routing, const Real* dweights,
                    Real* dlogits);

// Moves the rows of pairs between the ranks that have the tokens and those that
// hold the experts.
//
//   PairExchange exchange(sizes, parallel.ep);
//   exchange.tell_counts(routing.counts, arrivals);   // once for a routing
//   exchange.use_counts(routing.counts, arrivals);    // again in backward
//   exchange.to_experts(pairs, rows, sizes.hidden, spare);
//   exchange.rows_of(3);                  // of the fourth expert held here
//   exchange.to_tokens(rows, pairs, sizes.hidden, spare);
//
// Pairs are sorted by expert, then by token. Rows are sorted by the experts
// held here, then by the rank they came from, then by token: an order that does
// not depend on timing. Without other ranks, rows are the pairs, in the same
// memory, and nothing moves.
//
// All ranks of the group must call the same functions in the same order. One
// thread at a time. Nothing is allocated after construction.
class PairExchange {
 public:
  // `ep` may be null; otherwise it must outlive this.
  PairExchange(const ExpertSizes& sizes, Communicator* ep);

  // `counts` are this rank's pairs for every expert; `arrivals` receives the
  // number of rows from each rank for each expert on this rank.
  void tell_counts(const int64_t* counts, int64_t* arrivals);
  void use_counts(const int64_t* counts, const int64_t* arrivals);

  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Rows rows_of(int64_t local_expert) const {
    return rows_[static_cast<size_t>(local_expert)];
  }
  int64_t num_rows() const { return rows_.back().begin + rows_.back().count; }

  // `spare` must have room for the rows.
  template <class Real>
  void to_experts(const Real* pairs, Real* rows, int64_t width, Real* spare);
  template <class Real>
  void to_tokens(const Real* rows, Real* pairs, int64_t width, Real* spare);

  double seconds() const { return seconds_; }  // in collectives

 private:
  // Consecutive runs of memory, one per rank.
  struct Runs {
    std::vector<int64_t> elements;  // for width 1
    std::vector<int64_t> bytes;
    std::vector<int64_t> offsets;

    void set_width(int64_t element_bytes);
    int64_t total_bytes() const { return offsets.back() + bytes.back(); }
  };

  void exchange(const std::byte* from, Runs& out, std::byte* to, Runs& in,
                int64_t element_bytes, std::string_view label);
  // Calls visit(position by rank, then expert; position by expert, then rank;
  // count) for every run of rows.
  template <class Visit>
  void for_each_arrival(const Visit& visit);

  ExpertSizes sizes_;
  Communicator* ep_;
  Runs away_;                      // outgoing pairs, by destination rank
  Runs arrived_;                   // incoming rows, by source rank
  std::vector<int64_t> arrivals_;  // by rank, then expert
  std::vector<int64_t> cursors_;   // of experts
  std::vector<Rows> rows_;
  double seconds_ = 0;
};

}  // namespace canzona
