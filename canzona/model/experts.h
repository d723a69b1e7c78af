// The feed-forward blocks of layers: dense ones, and experts with the routing
// of tokens to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/tensor.h"

namespace canzona::model {

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

// The feed-forward block of a dense layer: down · (silu(gate·x) ∘ (up·x)), gate
// and up in one product.
//
//   Mlp<float> mlp(sizes, tensors, engine, weights);
//   mlp.forward(x, y, saved, scratch);      // then all-reduce y over tp
//
// It has the interface of Experts, which other layers have instead: y and dx
// are this tp rank's shares, `saved` must be kept from forward to backward, and
// memory belongs to the caller. One thread at a time; nothing is allocated.

template <class Real>
class Mlp {
 public:
  Mlp(const DecoderSizes& sizes, const LayerTensors& tensors, Engine& engine,
      Weights<Real>& weights)
      : sizes_(sizes), tensors_(tensors), engine_(engine), weights_(weights) {}

  static int64_t saved_bytes(const DecoderSizes& sizes);
  static int64_t scratch_bytes(const DecoderSizes& sizes);

  // If y is null, computes only what backward needs.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, Announce what);

 private:
  Linear<Real> gate_up() const;
  Linear<Real> down() const;

  DecoderSizes sizes_;
  LayerTensors tensors_;
  Engine& engine_;
  Weights<Real>& weights_;
};

// The feed-forward block of a layer with experts: a router sends every token to
// a few of them and adds their outputs with the router's weights; shared
// experts, if any, process every token.
//
//   Experts<float> experts(config, shapes, layer, parallel, engine, weights);
//   experts.forward(x, y, saved, scratch);   // then all-reduce y over tp
//   loss += experts.balance_loss(saved);
//   experts.backward(x, dy, dx, saved, scratch, what);
//
// No token is dropped: there is memory for all tokens at one expert. With ep,
// tokens travel to the ranks that hold their experts and back, so an expert's
// gradient is the sum over the micro-batches of all ranks of the group; the
// gradients of the router and the shared experts are of this rank's tokens
// only.
//
// Every tp rank has the same x, hence bit-identical routing, and its own share
// of every expert. The router's gradient is the same on all of them.
//
// `saved` and `scratch` belong to the caller and must be 128-byte aligned;
// `saved` must be kept from forward to backward, which changes it. Neither call
// allocates. All ranks of tp and ep must call together. One thread at a time.

template <class Real>
class Experts {
 public:
  // Throws UsageError if the mesh does not divide the experts or their ffn, or
  // if fp64 would have to be summed over tp, which supports only fp32.
  Experts(const DecoderConfig& config, const Model& shapes, int64_t layer,
          const Parallel& parallel, Engine& engine, Weights<Real>& weights);

  // The size of `saved` for one micro-batch and layer.
  static int64_t saved_bytes(const DecoderConfig& config,
                             const Parallel& parallel);
  // The size of `scratch`.
  static int64_t scratch_bytes(const DecoderConfig& config,
                               const Parallel& parallel);

  // Computes y, this tp rank's share of the output; x and y are tokens x hidden
  // and must not overlap. If y is null, computes only what backward needs.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  // Computes dx, this tp rank's share of the gradient of x; dy is the whole
  // gradient. Adds weight gradients and announces the block's tensors.
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, Announce what);

  // Returns the mean over the micro-batch's sequences, times
  // balance_coefficient.
  double balance_loss(const std::byte* saved) const;
  double comm_seconds() const { return exchange_.seconds() + tp_.seconds(); }

 private:
  struct Saved {
    Routing<Real> routing;
    int64_t* arrivals = nullptr;  // of the exchange
    Real* rows = nullptr;         // x on the experts' ranks
    Real* gate_up = nullptr;      // of the rows
    std::byte* shared = nullptr;  // of the shared experts
  };
  struct Scratch {
    Real* rows = nullptr;   // the experts' output, or its gradient
    Real* pairs = nullptr;  // without ep the same as rows
    Real* spare = nullptr;  // as large as rows; only with ep
    Real* act = nullptr;    // for one expert
    Real* dact = nullptr;
    // One for each row and pair: weights, later their gradients.
    Real* row_weights = nullptr;
    Real* pair_weights = nullptr;
    Real* dweights = nullptr;  // by token and choice
    Real* dlogits = nullptr;
    std::byte* shared = nullptr;
  };
  static Saved take_saved(const DecoderConfig& config, const Parallel& parallel,
                          Cutter& cutter);
  static Scratch take_scratch(const DecoderConfig& config,
                              const Parallel& parallel, Cutter& cutter);

  void find_tensors(const Model& shapes, int64_t layer);
  // Routes x and moves its rows to the experts.
  void send_inputs(const Real* x, const Saved& saved, const Scratch& scratch);
  // Copies x's rows, once for each pair.
  void gather(const Routing<Real>& routing, const Real* x, Real* pairs) const;
  // Adds Σ_k weight_k · pair_k to every token of y; without weights, they are
  // 1.
  void add_up(const Routing<Real>& routing, const Real* weights,
              const Real* pairs, Real* y) const;

  // The rows of one expert on this rank, in all arrays that have them.
  struct Share {
    Linear<Real> gate_up;
    Linear<Real> down;
    int64_t count = 0;
    const Real* x = nullptr;
    Real* gate_up_rows = nullptr;
    Real* rows = nullptr;
    Real* weights = nullptr;
  };
  Share share_of(size_t expert, const Saved& saved,
                 const Scratch& scratch) const;
  void expert_backward(const Share& share, const Scratch& scratch,
                       Announce what) const;
  void experts_backward(const Saved& saved, const Scratch& scratch,
                        Announce what);
  void router_backward(const Real* x, Real* dx, const Saved& saved,
                       const Scratch& scratch, Announce what);
  Linear<Real> linear(int32_t tensor, int64_t out, int64_t in) const {
    return {engine_, weights_, tensor, out, in};
  }
  Linear<Real> router() const {
    return linear(router_, sizes_.experts, sizes_.hidden);
  }

  struct ExpertTensors {
    int32_t gate_up = -1;
    int32_t down = -1;
  };

  DecoderConfig config_;
  Parallel parallel_;
  ExpertSizes sizes_;
  Engine& engine_;
  Weights<Real>& weights_;
  TpGroup<Real> tp_;
  PairExchange exchange_;
  int32_t router_ = -1;
  std::vector<ExpertTensors> held_;  // experts on this rank
  std::optional<Mlp<Real>> shared_;
};

}  // namespace canzona::model
