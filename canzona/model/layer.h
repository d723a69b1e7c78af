// One layer: attention and a feed-forward block, each added to the stream.
//
//   layer.forward(x, saved, out);
//   layer.backward(x, saved, gradient, what);
//
// The caller keeps x and `saved` from forward to backward, which overwrites
// `saved`. Scratch is shared by all layers. One thread at a time; nothing is
// allocated after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "canzona/model/decoder_memory.h"
#include "canzona/model/experts.h"
#include "canzona/model/parallel.h"
#include "canzona/model/weights.h"

namespace canzona {

// The feed-forward block of a layer, dense or with experts, and its memory.
//
//   FeedForward<float> feed(config, shapes, layer, parallel, engine, weights);
//   feed.forward(x, y, saved, scratch);     // then all-reduce y over tp
//
// y and dx are this tp rank's shares; memory belongs to the caller. One thread
// at a time; nothing is allocated after construction.

struct FeedBytes {
  int64_t saved = 0;    // from forward to backward
  int64_t scratch = 0;  // during a call
};

template <class Real>
FeedBytes feed_bytes(const DecoderConfig& config, const Parallel& parallel,
                     int64_t layer);

template <class Real>
class FeedForward {
 public:
  FeedForward(const DecoderConfig& config, const Model& shapes, int64_t layer,
              const Parallel& parallel, Engine& engine, Weights<Real>& weights);

  // If y is null, computes only what backward needs.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, Announce what);

  double balance_loss(const std::byte* saved) const;  // 0 without experts
  double comm_seconds() const;

 private:
  using Block = std::variant<Mlp<Real>, Experts<Real>>;
  static Block make_block(const DecoderConfig& config, const Model& shapes,
                          int64_t layer, const Parallel& parallel,
                          Engine& engine, Weights<Real>& weights);

  Block block_;
};

template <class Real>
class Layer {
 public:
  // `head_norms` is where the gradients of the query and key norms are summed
  // until ranks add theirs; null if this rank has all heads or there are no
  // such norms.
  Layer(const Tools<Real>& tools, const Model& shapes, int64_t layer,
        const Parallel& parallel, Real* head_norms);

  // If `out` is null, computes only `saved`.
  void forward(const Real* x, const LayerSaved<Real>& saved, Real* out);
  // Replaces the stream's gradient after the layer by that before it.
  void backward(const Real* x, const LayerSaved<Real>& saved, Real* gradient,
                Announce what);

  double balance_loss(const LayerSaved<Real>& saved) const {
    return feed_.balance_loss(saved.feed);
  }
  double comm_seconds() const { return feed_.comm_seconds(); }

 private:
  void norm(Real* out, const Real* x, int32_t weight) const;
  // Adds to the stream's gradient and the weight's.
  void norm_backward(const Real* x, int32_t weight, Real* gradient,
                     Announce what);
  void attend_backward(const LayerSaved<Real>& saved, const Real* gradient,
                       Announce what);
  bool has_head_norms() const { return tensors_.query_norm >= 0; }
  HeadNormGradients<Real> head_norm_gradients() const;
  void add_up_head_norms();
  void done(int32_t tensor, Announce what) const;
  HeadNorms<Real> head_norm_weights() const;
  Linear<Real> qkv() const;
  Linear<Real> o() const;

  Tools<Real> tools_;
  LayerTensors tensors_;
  FeedForward<Real> feed_;
  Real* head_norms_;
};

}  // namespace canzona
