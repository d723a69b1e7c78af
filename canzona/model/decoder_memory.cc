#include "canzona/model/decoder_memory.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/layers.h"

namespace canzona::model {
namespace {

// Returns the most memory that any layer of the stage needs.
template <class Real>
FeedBytes largest_feed(const DecoderConfig& config, const Parallel& parallel) {
  FeedBytes most;
  for (int64_t i = 0; i < parallel.num_layers; ++i) {
    const FeedBytes one =
        feed_bytes<Real>(config, parallel, parallel.first_layer + i);
    most.saved = std::max(most.saved, one.saved);
    most.scratch = std::max(most.scratch, one.scratch);
  }
  return most;
}

template <class Real>
LayerSaved<Real> take_saved(const DecoderSizes& sizes, int64_t feed,
                            Cutter& cutter) {
  LayerSaved<Real> saved;
  saved.qkv = cutter.take<Real>(sizes.tokens(), sizes.qkv());
  saved.attention = cutter.take<Real>(sizes.tokens(), sizes.width());
  saved.log_sums = cutter.take<Real>(sizes.tokens(), sizes.heads());
  saved.middle = cutter.take<Real>(sizes.tokens(), sizes.hidden);
  saved.feed = cutter.take<std::byte>(feed);
  return saved;
}

template <class Real>
Slot<Real> take_slot(const DecoderConfig& config, const Parallel& parallel,
                     const LayerSaved<Real>& shared, Cutter& cutter) {
  const DecoderSizes sizes = decoder_sizes(config, parallel);
  Slot<Real> slot;
  for (int64_t i = 0; i < parallel.num_layers; ++i) {
    slot.inputs.push_back(cutter.take<Real>(sizes.tokens(), sizes.hidden));
    const int64_t layer = parallel.first_layer + i;
    if (config.recompute == Recompute::kLayer) {
      slot.layers.push_back(shared);
      continue;
    }
    const bool keeps_feed = config.recompute == Recompute::kOff;
    slot.layers.push_back(take_saved<Real>(
        sizes, keeps_feed ? feed_bytes<Real>(config, parallel, layer).saved : 0,
        cutter));
    if (!keeps_feed) slot.layers.back().feed = shared.feed;
  }
  if (!parallel.has_head) return slot;
  slot.inputs.push_back(cutter.take<Real>(sizes.tokens(), sizes.hidden));
  if (sizes.keeps_logits())
    slot.logits = cutter.take<Real>(sizes.tokens(), sizes.vocab);
  return slot;
}

template <class Real>
void take_head(Space<Real>& space, const DecoderSizes& sizes, Cutter& cutter) {
  if (!sizes.keeps_logits())
    space.logits = cutter.take<Real>(sizes.head_chunk, sizes.vocab);
  space.largest = cutter.take<Real>(sizes.head_chunk);
  space.sums = cutter.take<Real>(2 * sizes.head_chunk);
  space.ordered = cutter.take<int64_t>(sizes.head_chunk);
}

template <class Real>
Space<Real> take_space(const DecoderConfig& config, const Parallel& parallel,
                       int64_t together, Cutter& cutter) {
  const DecoderSizes sizes = decoder_sizes(config, parallel);
  const auto stream = [&] {
    return cutter.take<Real>(sizes.tokens(), sizes.hidden);
  };
  Space<Real> space;
  space.normed = stream();
  space.delta = stream();
  space.gradients = cutter.take<Real>(together * sizes.tokens(), sizes.hidden);
  space.heads_gradient = cutter.take<Real>(sizes.tokens(), sizes.width());
  space.feed =
      cutter.take<std::byte>(largest_feed<Real>(config, parallel).scratch);
  space.attention = AttentionSpace<Real>::take(sizes, cutter);
  if (parallel.has_head) take_head(space, sizes, cutter);
  if (parallel.tp_size() > 1 && config.architecture.qk_norm)
    space.head_norms =
        cutter.take<Real>(parallel.num_layers, 2 * sizes.head_dim);
  if (config.notes_logits)
    space.largest_logits =
        cutter.take<Real>(parallel.num_layers, sizes.heads());
  return space;
}

}  // namespace

template <class Real>
DecoderMemory<Real> DecoderMemory<Real>::take(const DecoderConfig& config,
                                              const Parallel& parallel,
                                              int64_t in_flight,
                                              int64_t together,
                                              Cutter& cutter) {
  DecoderMemory memory;
  LayerSaved<Real> shared;  // by all layers
  const int64_t feed = largest_feed<Real>(config, parallel).saved;
  if (config.recompute == Recompute::kLayer)
    shared = take_saved<Real>(decoder_sizes(config, parallel), feed, cutter);
  if (config.recompute == Recompute::kMlp)
    shared.feed = cutter.take<std::byte>(feed);
  for (int64_t i = 0; i < in_flight; ++i)
    memory.slots.push_back(take_slot<Real>(config, parallel, shared, cutter));
  memory.space = take_space<Real>(config, parallel, together, cutter);
  return memory;
}

template <class Real>
int64_t decoder_memory(const DecoderConfig& config, const Parallel& parallel,
                       int64_t in_flight, int64_t together) {
  if (in_flight < 1)
    throw UsageError(
        cat("decoder: at least 1 micro-batch is in flight, got ", in_flight));
  if (together < 1 || together > in_flight)
    throw UsageError(cat("decoder: 1 to ", in_flight,
                         " micro-batches go back together, got ", together));
  Cutter count(nullptr);
  DecoderMemory<Real>::take(config, parallel, in_flight, together, count);
  return count.bytes();
}

template struct DecoderMemory<float>;
template struct DecoderMemory<double>;
template int64_t decoder_memory<float>(const DecoderConfig&, const Parallel&,
                                       int64_t, int64_t);
template int64_t decoder_memory<double>(const DecoderConfig&, const Parallel&,
                                        int64_t, int64_t);

}  // namespace canzona::model
