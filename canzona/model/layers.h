// A micro-batch passes through the embedding, the layers, and the head with its
// loss. The caller keeps what backward needs; one thread at a time; nothing is
// allocated after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>

#include "canzona/model/decoder_config.h"
#include "canzona/model/decoder_memory.h"
#include "canzona/model/experts.h"
#include "canzona/model/weights.h"

namespace canzona::model {

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

// One layer: attention and a feed-forward block, each added to the stream.
//
//   layer.forward(x, saved, out);
//   layer.backward(x, saved, gradient, what);
//
// The caller keeps x and `saved` from forward to backward, which overwrites
// `saved`. Scratch is shared by all layers. One thread at a time; nothing is
// allocated after construction.
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
  Real* largest_logits_ = nullptr;  // of this layer's heads; null: not noted
};

// Looks up the embedding's rows for the tokens of a micro-batch.
//
//   embedding.forward(sequences, x);
//   embedding.backward(sequences, gradient, what);
//
// With tp, a rank has some rows of the vocabulary, and the ranks' results are
// summed. One thread at a time; nothing is allocated.
template <class Real>
class Embedding {
 public:
  Embedding(const Tools<Real>& tools, int32_t tensor)
      : tools_(tools), tensor_(tensor) {}

  void forward(std::span<const int32_t> sequences, Real* x);
  void backward(std::span<const int32_t> sequences, const Real* gradient,
                Announce what);

 private:
  // Returns this rank's row of the token, or a number outside its rows.
  int64_t row_of(std::span<const int32_t> sequences, int64_t token) const;

  Tools<Real> tools_;
  int32_t tensor_;
};

// Final norm, head and cross entropy: the mean loss over the tokens of a
// micro-batch, with logits of a chunk of tokens in memory at a time.
//
//   double loss = head.forward(x, sequences, slot.logits);
//   head.backward(x, sequences, slot.logits, gradient, what);
//
// The logits are overwritten by their gradient. If the slot keeps it, backward
// finds it there; otherwise (`logits` null) it is recomputed. With tp, a rank
// has some rows of the vocabulary, and ranks exchange the largest logit, the
// sum of exponentials and the target's logit.

// Receives the logits of some tokens: the number of the first, and a row for
// each.
template <class Real>
using UseLogits =
    std::function<void(int64_t first, std::span<const Real> rows)>;

template <class Real>
class Head {
 public:
  // `shared`: the tensor is also the embedding's, and is not announced here.
  Head(const Tools<Real>& tools, const OuterTensors& tensors, bool shared)
      : tools_(tools), tensors_(tensors), shared_(shared) {}

  // Returns the mean over the first `counted` tokens; 0 if there are none.
  double forward(const Real* x, std::span<const int32_t> sequences,
                 Real* logits, int64_t counted);
  // Computes every token's logits, chunk by chunk.
  void logits(const Real* x, Real* logits, const UseLogits<Real>& use);
  // `gradient` receives the gradient of x.
  void backward(const Real* x, std::span<const int32_t> sequences, Real* logits,
                Real* gradient, Announce what);

 private:
  struct Chunk {
    int64_t begin;
    int64_t count;
    Real* logits;
  };
  template <class Work>
  void each_chunk(Real* logits, const Work& work) const;
  void norm(const Real* x, const Chunk& chunk) const;
  void fill(const Real* x, const Chunk& chunk) const;
  // Returns the sum of the losses of the chunk's tokens before `counted`;
  // replaces logits by gradients of the mean over all tokens.
  double losses(const Chunk& chunk, std::span<const int32_t> sequences,
                int64_t counted) const;
  // Returns the logit of the target of the chunk's token i; null if another
  // rank has it.
  Real* target(const Chunk& chunk, int64_t i,
               std::span<const int32_t> sequences) const;
  Linear<Real> linear() const;

  Tools<Real> tools_;
  OuterTensors tensors_;
  bool shared_;
};

}  // namespace canzona::model
