// The feed-forward block of a layer that has experts: a router sends every
// token to a few of them and adds what they give by the router's weights;
// shared experts, if there are, work on every token.
//
//   Experts<float> experts(config, shapes, layer, parallel, engine, weights);
//   experts.forward(x, y, saved, scratch);          // then all-reduce y over
//   tp loss += experts.balance_loss(saved); experts.backward(x, dy, dx, saved,
//   scratch, last);
//
// No token is dropped: memory is for all tokens at one expert. Under ep tokens
// travel to the ranks that hold their experts and back, so an expert's gradient
// is the sum over the micro-batches of all ranks of the group; the router's and
// the shared experts' is of this rank's tokens alone.
//
// Every tp rank has the same x, and so the same routing to the bit, and its own
// share of every expert. The router's gradient is the same on all of them.
//
// `saved` and `scratch` belong to the caller and lie on 128-byte borders; saved
// is kept from forward to backward, which changes it. Nothing is allocated in
// either. All ranks of tp and ep call together; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/experts_exchange.h"
#include "canzona/model/experts_routing.h"
#include "canzona/model/experts_sizes.h"
#include "canzona/model/parallel.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

template <class Real>
class Experts {
 public:
  // UsageError if the mesh does not divide the experts or their ffn, or if
  // fp64 is to be added over tp, which only sums fp32.
  Experts(const DecoderConfig& config, const Model& shapes, int64_t layer,
          const Parallel& parallel, Engine& engine, Weights<Real>& weights);

  // Kept from forward to backward, for one micro-batch and layer.
  static int64_t saved_bytes(const DecoderConfig& config,
                             const Parallel& parallel);
  // Used during a call.
  static int64_t scratch_bytes(const DecoderConfig& config,
                               const Parallel& parallel);

  // y = this tp rank's share of the output; x and y are tokens x hidden and do
  // not overlap.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  // dx = this tp rank's share of the gradient of x; dy is whole. Weight
  // gradients are added. `last`: nothing more comes in this step, and the
  // block's tensors are reported ready.
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, bool last);

  // The mean over the micro-batch's sequences, times balance_coefficient.
  double balance_loss(const std::byte* saved) const;
  double comm_seconds() const { return exchange_.seconds() + tp_seconds_; }

 private:
  // Tensors of one mlp.
  struct Mlp {
    int32_t gate_up = -1;
    int32_t down = -1;
    int64_t ffn = 0;  // this rank's share
  };
  struct Saved {
    Routing<Real> routing;
    int64_t* arrivals = nullptr;  // of the exchange
    Real* rows = nullptr;         // x where the experts are
    Real* gate_up = nullptr;      // of the rows
    Real* shared_gate_up = nullptr;
  };
  struct Scratch {
    Real* rows = nullptr;    // what experts give, or get in backward
    Real* spare = nullptr;   // as many; only under ep
    Real* pairs = nullptr;   // null without ep, where rows are the pairs
    Real* act = nullptr;     // of one mlp
    Real* dact = nullptr;    // likewise
    Real* logits = nullptr;  // gradient of them
    // Of pairs, and the same at the experts: weights, then gradients of them.
    Real* pair_numbers = nullptr;
    Real* row_numbers = nullptr;
    Real* dweights = nullptr;  // by token and choice
  };
  static Saved place_saved(ArrayCutter& cutter, const ExpertSizes& sizes);
  static Scratch place_scratch(ArrayCutter& cutter, const ExpertSizes& sizes);

  void find_tensors(const Model& shapes, int64_t layer, int ep_rank);
  void gather(const Routing<Real>& routing, const Real* x, Real* pairs) const;
  void add_up(const Routing<Real>& routing, const Real* weights,
              const Real* pairs, Real* y) const;

  void mlp_forward(const Mlp& mlp, const Real* x, int64_t rows, Real* gate_up,
                   Real* act, Real* y, double beta);
  // Overwrites gate_up. With `numbers`, each row counts that much, and gets the
  // gradient of it. dx may be dy.
  void mlp_backward(const Mlp& mlp, const Real* x, const Real* dy, int64_t rows,
                    Real* gate_up, const Scratch& scratch, Real* numbers,
                    Real* dx, double beta);
  void experts_backward(const Saved& saved, const Scratch& scratch, bool last);
  void router_backward(const Real* x, Real* dx, const Saved& saved,
                       const Scratch& scratch, bool last);
  void collect_weight_gradients(const Saved& saved, const Scratch& scratch);
  void report_ready(const Mlp& mlp);

  ExpertSizes sizes_;
  double balance_coefficient_;
  Communicator* tp_;
  Engine& engine_;
  Weights<Real>& weights_;
  PairExchange exchange_;
  int32_t router_ = -1;
  Mlp shared_;             // no tensors: there are none
  std::vector<Mlp> held_;  // experts held here
  double tp_seconds_ = 0;
};

}  // namespace canzona
