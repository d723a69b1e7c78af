#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/device_decoder_memory.h"
#include "canzona/model/trained_decoder.h"

namespace canzona::model {
namespace {

// Logits in memory at once. A chunk's product adds to the whole gradient of the
// head, so chunks are large.
constexpr int64_t kMostLogits = int64_t{1} << 29;
// cuDNN's deterministic backward keeps a gradient for every pair of tokens; it
// is called for as many sequences at a time as fit here, or for one.
constexpr int64_t kMostPairs = int64_t{1} << 31;

int64_t head_chunk(const DecoderConfig& config) {
  constexpr int64_t kStep = 128;
  const int64_t tokens = config.tokens();
  if (config.head_chunk > 0) return std::min(config.head_chunk, tokens);
  const int64_t most =
      std::max(kMostLogits / config.architecture.vocab / kStep * kStep, kStep);
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min((even + kStep - 1) / kStep * kStep, tokens);
}

// Bytes for the sequences that are worked on together: for each pair of tokens
// a bf16 gradient, and for each head's token gradients of query, key and value.
int64_t cudnn_workspace(const DeviceSizes& sizes) {
  constexpr int64_t kSlack = int64_t{1} << 20;
  const int64_t rows = (sizes.length + 127) / 128 * 128;
  const int64_t pairs = sizes.heads() * rows * rows;
  const int64_t at_once =
      std::clamp<int64_t>(kMostPairs / pairs, 1, sizes.micro_batch);
  const int64_t one =
      2 * pairs + sizes.heads() * rows * (8 * sizes.head_dim + 16);
  return checked_mul(at_once, one, "workspace of attention") + kSlack;
}

[[noreturn]] void refuse(const std::string& name, std::string_view what) {
  throw UsageError(cat("decoder ", quoted(name), " on a GPU: ", what));
}

void check_multiple(const std::string& name, std::string_view what,
                    int64_t value, int64_t of) {
  if (value % of != 0)
    refuse(name, cat(what, "=", value, " must be a multiple of ", of));
}

}  // namespace

DeviceSizes::DeviceSizes(const DecoderConfig& config)
    : DecoderSizes(
          decoder_sizes(config, {.num_layers = config.architecture.layers})) {
  head_chunk = model::head_chunk(config);
}

template <class T>
DeviceSaved<T> take_saved(const DeviceSizes& sizes, bool feed, Cutter& cutter) {
  DeviceSaved<T> saved;
  saved.qkv = cutter.take<T>(sizes.tokens(), sizes.qkv());
  saved.attention = cutter.take<T>(sizes.tokens(), sizes.width());
  saved.log_sums = cutter.take<float>(sizes.tokens(), sizes.heads());
  saved.middle = cutter.take<T>(sizes.tokens(), sizes.hidden);
  if (feed) saved.gate_up = cutter.take<T>(sizes.tokens(), 2 * sizes.ffn);
  return saved;
}

template <class T>
DeviceSpace<T> take_space(const DecoderConfig& config, int64_t together,
                          Cutter& cutter) {
  const DeviceSizes sizes(config);
  const int64_t tokens = sizes.tokens();
  DeviceSpace<T> space;
  space.normed = cutter.take<T>(tokens, sizes.hidden);
  space.delta = cutter.take<T>(tokens, sizes.hidden);
  space.gradients = cutter.take<T>(together * tokens, sizes.hidden);
  space.heads_gradient = cutter.take<T>(tokens, sizes.width());
  space.act = cutter.take<T>(tokens, sizes.ffn);
  space.turned = cutter.take<T>(tokens, sizes.turned());
  space.turned_gradient = cutter.take<T>(tokens, sizes.turned());
  space.qkv_gradient = cutter.take<T>(tokens, sizes.qkv());
  space.logits = cutter.take<T>(sizes.head_chunk, sizes.logits_stride());
  space.token_losses = cutter.take<float>(tokens);
  space.losses = cutter.take<double>(DeviceSizes::kMostLosses);
  space.numbers = cutter.take<float>(2);
  space.cosines = cutter.take<float>(sizes.length, sizes.head_dim / 2);
  space.sines = cutter.take<float>(sizes.length, sizes.head_dim / 2);
  space.partial = cutter.take<float>(
      sizes.strips(), std::max(sizes.hidden, 2 * sizes.head_dim));
  if (config.plain_attention) {
    space.deltas = cutter.take<float>(tokens, sizes.heads());
  } else {
    space.workspace_bytes = cudnn_workspace(sizes);
    space.workspace = cutter.take<std::byte>(space.workspace_bytes);
  }
  return space;
}

template <class T>
DeviceDecoderMemory<T> DeviceDecoderMemory<T>::take(const DecoderConfig& config,
                                                    int64_t in_flight,
                                                    int64_t together,
                                                    Cutter& cutter) {
  const DeviceSizes sizes(config);
  const bool keeps_feed = config.recompute == Recompute::kOff;
  DeviceDecoderMemory memory;
  DeviceSaved<T> shared;  // by all layers
  if (config.recompute == Recompute::kLayer)
    shared = take_saved<T>(sizes, true, cutter);
  if (config.recompute == Recompute::kMlp)
    shared.gate_up = cutter.take<T>(sizes.tokens(), 2 * sizes.ffn);
  for (int64_t s = 0; s < in_flight; ++s) {
    DeviceSlot<T>& slot = memory.slots.emplace_back();
    for (int64_t i = 0; i <= config.architecture.layers; ++i)
      slot.inputs.push_back(cutter.take<T>(sizes.tokens(), sizes.hidden));
    for (int64_t i = 0; i < config.architecture.layers; ++i) {
      slot.layers.push_back(config.recompute == Recompute::kLayer
                                ? shared
                                : take_saved<T>(sizes, keeps_feed, cutter));
      if (!keeps_feed) slot.layers.back().gate_up = shared.gate_up;
    }
    slot.tokens = cutter.take<int32_t>(staged_tokens(sizes.tokens()));
  }
  memory.space = take_space<T>(config, together, cutter);
  return memory;
}

template struct DeviceDecoderMemory<float>;
template struct DeviceDecoderMemory<uint16_t>;

void check_device_decoder(const DecoderConfig& config,
                          const std::string& name) {
  check_decoder(config, name);
  const Architecture& a = config.architecture;
  if (a.experts.count > 0) refuse(name, "layers with experts train on a CPU");
  if (config.notes_logits)
    refuse(name, "the largest logits of attention are noted on a CPU alone");
  if (config.context > 0 && config.context != config.length)
    refuse(name, cat("attention reaches ", config.length,
                     " tokens, those of a sequence, not ", config.context));
  check_multiple(name, "hidden", a.hidden, 8);
  check_multiple(name, "ffn", a.ffn, 8);
  check_multiple(name, "head_dim", a.head_dim, 16);
  if (a.head_dim > 256)
    refuse(name, cat("head_dim=", a.head_dim, " is above 256"));
  if (config.plain_attention) return;
  if (a.head_dim != 64 && a.head_dim != 128)
    refuse(name, cat("attention by cuDNN has head_dim 64 and 128, got ",
                     a.head_dim, "; use --attention plain"));
  if (config.length < 2)
    refuse(name, cat("attention by cuDNN needs two tokens, got length=",
                     config.length, "; use --attention plain"));
}

int64_t device_decoder_memory(const DecoderConfig& config, int64_t in_flight,
                              int64_t together) {
  Cutter count(nullptr);
  DeviceDecoderMemory<uint16_t>::take(config, in_flight, together, count);
  return count.bytes();
}

}  // namespace canzona::model
