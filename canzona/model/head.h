// Looks up the embedding's rows for the tokens of a micro-batch.
//
//   embedding.forward(sequences, x);
//   embedding.backward(sequences, gradient, what);
//
// With tp, a rank has some rows of the vocabulary, and the ranks' results are
// summed. One thread at a time; nothing is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "canzona/model/decoder_memory.h"
#include "canzona/model/weights.h"

namespace canzona {

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

}  // namespace canzona
