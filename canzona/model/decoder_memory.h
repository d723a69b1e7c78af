// The decoder's memory: one block, divided in advance.
//
//   int64_t bytes = decoder_memory<float>(config, parallel, 2, 1);
//
// A slot keeps what a micro-batch needs for its backward: the input of every
// layer and, unless layers are recomputed, what the layer's backward needs.
// Everything else is reused by one layer after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/attention.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"

namespace canzona::model {

// The memory of one layer and micro-batch.
template <class Real>
struct LayerSaved {
  Real* qkv = nullptr;
  Real* attention = nullptr;  // tokens x width, before o
  Real* log_sums = nullptr;   // tokens x heads
  Real* middle = nullptr;     // after attention
  std::byte* feed = nullptr;  // gate and up, or the experts' data
};

template <class Real>
struct Slot {
  std::vector<Real*> inputs;  // of each layer, and of the head
  std::vector<LayerSaved<Real>> layers;
  Real* logits = nullptr;  // or their gradient; null if recomputed
};

template <class Real>
struct Space {
  Real* normed = nullptr;  // tokens x hidden
  Real* delta = nullptr;   // a block's output; gradient of `normed`
  // Gradients of the stream between blocks, for each micro-batch of one
  // backward.
  Real* gradients = nullptr;
  Real* heads_gradient = nullptr;  // tokens x width
  std::byte* feed = nullptr;       // scratch of the feed-forward block
  AttentionSpace<Real> attention;
  Real* logits = nullptr;  // of a chunk, unless slots keep them
  Real* largest = nullptr;
  Real* sums = nullptr;  // followed by the targets' logits
  int64_t* ordered = nullptr;
  // Gradients of the query and key norms of each layer, if a rank has only some
  // of the heads and its sums wait for those of the others. Null without such
  // norms.
  Real* head_norms = nullptr;
  // The largest logit of every layer and head; null if none is noted.
  Real* largest_logits = nullptr;
};

template <class Real>
struct DecoderMemory {
  std::vector<Slot<Real>> slots;
  Space<Real> space;

  static DecoderMemory take(const DecoderConfig& config,
                            const Parallel& parallel, int64_t in_flight,
                            int64_t together, Cutter& cutter);
};

// Returns the bytes that a decoder reserves for `in_flight` micro-batches,
// `together` of them in one backward; works without ranks
// (Parallel::planned_tp). Throws UsageError if the decoder cannot be built.
template <class Real>
int64_t decoder_memory(const DecoderConfig& config, const Parallel& parallel,
                       int64_t in_flight, int64_t together = 1);

// Tools shared by all components of a decoder.
//
//   Layer<float> layer(tools, shapes, 3, parallel, nullptr);

// All of these must outlive the components.
template <class Real>
struct Tools {
  const DecoderConfig& config;
  const DecoderSizes& sizes;
  Engine& engine;
  Weights<Real>& weights;
  TpGroup<Real>& tp;
  const Space<Real>& space;
  Attention<Real>& attention;

  Real epsilon() const { return static_cast<Real>(config.norm_epsilon); }
};

}  // namespace canzona::model
