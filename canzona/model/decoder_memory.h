// The decoder's memory: one block, cut in advance.
//
//   int64_t bytes = decoder_memory<float>(config, parallel, 2, 1);
//
// A slot is what a micro-batch leaves for its backward: the input of every
// layer, and with it, unless layers are recomputed, what the layer's backward
// needs. Everything else is used by one layer after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/model/attention.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"
#include "canzona/model/sizes.h"

namespace canzona {

// The memory of one layer and micro-batch.
template <class Real>
struct LayerSaved {
  Real* qkv = nullptr;
  Real* attention = nullptr;  // tokens x width, before o
  Real* log_sums = nullptr;   // tokens x heads
  Real* middle = nullptr;     // after attention
  std::byte* feed = nullptr;  // gate and up, or what the experts keep
};

template <class Real>
struct Slot {
  std::vector<Real*> inputs;  // of each layer, and of the head
  std::vector<LayerSaved<Real>> layers;
  Real* logits = nullptr;  // or their gradient; null if they are made again
};

template <class Real>
struct Space {
  Real* normed = nullptr;  // tokens x hidden
  Real* delta = nullptr;   // what a block adds; gradient of `normed`
  // Gradients of the stream between blocks, of each micro-batch that goes back
  // at once.
  Real* gradients = nullptr;
  Real* heads_gradient = nullptr;  // tokens x width
  std::byte* feed = nullptr;       // of the feed-forward block
  AttentionSpace<Real> attention;
  Real* logits = nullptr;  // of a chunk, unless slots keep them
  Real* largest = nullptr;
  Real* sums = nullptr;  // and, behind them, the targets' logits
  int64_t* ordered = nullptr;
  // Gradients of query and key norms of each layer, where a rank has some of
  // the heads alone and its sums wait for those of the others. Null without
  // such norms.
  Real* head_norms = nullptr;
};

template <class Real>
struct DecoderMemory {
  std::vector<Slot<Real>> slots;
  Space<Real> space;

  static DecoderMemory take(const DecoderConfig& config,
                            const Parallel& parallel, int64_t in_flight,
                            int64_t together, Cutter& cutter);
};

// Bytes that a decoder reserves for micro-batches in flight, `together` of them
// in one backward; no ranks are needed (Parallel::planned_tp). UsageError where
// it cannot be built.
template <class Real>
int64_t decoder_memory(const DecoderConfig& config, const Parallel& parallel,
                       int64_t in_flight, int64_t together = 1);

}  // namespace canzona
