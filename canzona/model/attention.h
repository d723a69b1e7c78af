// Causal attention with grouped queries; queries and keys are optionally
// normed, and rotated. It works in blocks of queries and keys: only the scores
// of one block are in memory.
//
//   Attention<float> attention(config, sizes, engine,
//                              AttentionSpace<float>::take(sizes, cutter));
//   attention.forward(qkv, norms, out, log_sums);
//
// A row of qkv has, group by group, the group's queries, its key and its value.
// The queries of a group are rows of one matrix, token by token, so that each
// product covers all of them. Rows of `out` are heads in order; log_sums, of
// tokens x heads, is what backward needs in addition.
//
// The memory of the space belongs to the caller. One thread at a time; nothing
// is allocated.
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/ops/table.h"

namespace canzona::model {

// The norms of queries and keys, head_dim each; null if they are not normed.
template <class Real>
struct HeadNorms {
  const Real* query = nullptr;
  const Real* key = nullptr;
};
template <class Real>
struct HeadNormGradients {
  Real* query = nullptr;
  Real* key = nullptr;
};

// Scratch for one sequence and one group of heads at a time.
template <class Real>
struct AttentionSpace {
  Real* cosines = nullptr;  // reach x head_dim / 2; filled once
  Real* sines = nullptr;
  Real* queries = nullptr;  // length x per_group x head_dim
  Real* keys = nullptr;     // length x head_dim
  Real* query_gradients = nullptr;
  Real* key_gradients = nullptr;
  Real* value_gradients = nullptr;
  Real* scores = nullptr;  // of a block
  Real* score_gradients = nullptr;
  Real* heads = nullptr;  // out, or its gradient, for a block's queries
  Real* largest = nullptr;
  Real* sums = nullptr;

  static AttentionSpace take(const DecoderSizes& sizes, Cutter& cutter);
};

// A layer's cache of one sequence, for the tokens that follow: rotated keys,
// and values, groups x capacity x head_dim.
template <class Real>
struct PastTokens {
  Real* keys = nullptr;  // null: a new sequence
  Real* values = nullptr;
  int64_t capacity = 0;
  int64_t count = 0;
};

template <class Real>
class Attention {
 public:
  // Fills in the space's angles.
  Attention(const DecoderConfig& config, const DecoderSizes& sizes,
            Engine& engine, const AttentionSpace<Real>& space);

  // qkv is only read. If `largest_logits` is not null, each of its numbers, by
  // head, becomes the largest logit so far; NaN stays.
  void forward(Real* qkv, const HeadNorms<Real>& norms, Real* out,
               Real* log_sums, Real* largest_logits = nullptr);

  // Makes forward() continue after these tokens and append its own: one
  // sequence, whose number of past tokens must be a multiple of 64 unless it
  // reads a single token. backward() is not available then.
  void set_past(const PastTokens<Real>& past);

  // The results of forward, and the gradient of `out`.
  struct Saved {
    const Real* out = nullptr;
    const Real* log_sums = nullptr;
    const Real* out_gradient = nullptr;
  };
  // Replaces qkv by its gradient and adds to those of the norms.
  void backward(Real* qkv, const HeadNorms<Real>& norms, const Saved& saved,
                const HeadNormGradients<Real>& gradients);

 private:
  // One sequence and group, and where its numbers begin.
  struct Group {
    Real* qkv;
    int64_t first_head;
    int64_t first_token;
    // Rotated keys, and values: those of past tokens, then the new ones.
    Real* keys = nullptr;
    Real* values = nullptr;
    int64_t value_stride = 0;
  };
  // Queries [first, first + tokens), and keys [begin, begin + count) counted
  // from the first past token.
  struct Block {
    int64_t first;
    int64_t tokens;
    int64_t begin = 0;
    int64_t count = 0;
  };

  template <class Work>
  void each_group(Real* qkv, const Work& work) const;
  template <class Work>
  void each_query_block(const Work& work) const;
  template <class Work>
  void each_key_block(Block b, const Work& work) const;

  Group group_at(Real* qkv, int64_t sequence, int64_t group) const;
  Real* value_at(const Group& g, int64_t token) const {
    return g.values + token * g.value_stride;
  }
  Real* raw_values(const Group& g) const {
    return g.qkv + (sizes_.per_group + 1) * sizes_.head_dim;
  }
  void keep_values(const Group& g) const;
  Real* query_at(Real* all, const Block& b) const {
    return all + b.first * sizes_.per_group * sizes_.head_dim;
  }
  TurnedHeads<Real> heads_of(const Group& g, Real* turned, bool query,
                             const Real* weight) const;
  void turn(const Group& g, const HeadNorms<Real>& norms);
  void turn_back(const Group& g, const HeadNorms<Real>& norms,
                 const HeadNormGradients<Real>& gradients);

  ScoreBlock<Real> score(const Group& g, const Block& b);
  void attend(const Group& g, const Block& b);
  void attend_queries(const Group& g, const Block& b, Real* out,
                      Real* log_sums);
  void note_largest(const Group& g, const Block& b, Real* largest_logits) const;
  void attend_backward(const Group& g, const Block& b);
  void attend_queries_backward(const Group& g, const Block& b,
                               const Saved& saved);

  DecoderSizes sizes_;
  Real epsilon_;
  Engine& engine_;
  AttentionSpace<Real> space_;
  PastTokens<Real> past_;
};

}  // namespace canzona::model
