// The numbers of the decoder that `canzona train` trains, and a rank's share of
// it. The decoder is a Qwen3-style transformer, or, without norms of queries
// and keys, a Llama-style one. Shapes are those of shapes/architecture.h; the
// numbers added here do not change any tensor.
//
//   DecoderConfig config{.architecture = tiny, .length = 64, .micro_batch = 2};
//   Model shapes = decoder_shapes(config, "tiny");
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/base/units.h"
#include "canzona/comm/communicator.h"
#include "canzona/shapes/architecture.h"

namespace canzona::model {

// A rank's share of the decoder, and the ranks it computes with.
//
// With tp, q, k, v, gate and up are cut by rows, o and down by columns,
// embedding and head by rows of the vocabulary. With ep, every rank has its own
// tokens and some of the experts. With pp, a rank has consecutive layers, the
// first stage the embedding, the last one the final norm and the head.
struct Parallel {
  Communicator* tp = nullptr;  // null: not cut
  Communicator* ep = nullptr;  // null: all experts are on this rank
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  bool has_embedding = true;
  bool has_head = true;
  // The sizes for predicting memory before there are ranks.
  int planned_tp = 1;
  int planned_ep = 1;

  int tp_size() const { return tp == nullptr ? planned_tp : tp->size(); }
  int tp_rank() const { return tp == nullptr ? 0 : tp->rank(); }
  int ep_size() const { return ep == nullptr ? planned_ep : ep->size(); }
  int ep_rank() const { return ep == nullptr ? 0 : ep->rank(); }
};

// Sums and maxima over the ranks that share a layer; no-ops for a single rank.
// The time is counted.
//
//   TpGroup<float> tp(parallel.tp);
//   tp.add(delta, tokens * hidden, "attention");
//
// One thread at a time. Nothing is allocated after construction.
template <class Real>
class TpGroup {
 public:
  // Throws UsageError for several ranks with fp64: there are only fp32 sums.
  explicit TpGroup(Communicator* ranks);

  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  int rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  double seconds() const { return seconds_; }

  void add(Real* data, int64_t count, std::string_view label);
  // `scratch` must hold `count` numbers.
  void largest(Real* data, int64_t count, int64_t* scratch,
               std::string_view label);

 private:
  void reduce(Reduction reduction, void* data, int64_t bytes,
              std::string_view label);

  Communicator* ranks_;
  double seconds_ = 0;
};

// A layer computes these again in backward instead of keeping them: nothing,
// gate and up, or everything but the layer's input.
enum class Recompute { kOff, kMlp, kLayer };

struct DecoderConfig {
  Architecture architecture = {};
  int64_t length = 0;       // tokens per sequence
  int64_t context = 0;      // tokens that attention reaches; 0: length
  int64_t micro_batch = 1;  // sequences per micro-batch
  double norm_epsilon = 1e-6;
  double rope_base = 10000;
  int64_t experts_per_token = 2;  // in layers with experts
  // The coefficient of the loss that balances tokens over experts. It is
  // computed for each sequence separately, so that it does not depend on how
  // sequences are distributed over ranks.
  double balance_coefficient = 0.01;
  Recompute recompute = Recompute::kOff;
  // On a GPU: attention by our own kernel in place of cuDNN.
  bool plain_attention = false;
  // Notes the largest logit of every head of attention.
  bool notes_logits = false;
  // Tokens whose logits are in memory at once; 0 chooses by the vocabulary's
  // size.
  int64_t head_chunk = 0;

  int64_t tokens() const { return length * micro_batch; }
  int64_t reach() const { return context > 0 ? context : length; }
};

// UsageError names the number that is out of bounds, or a feature that the
// decoder does not have: latent attention, biases.
void check_decoder(const DecoderConfig& config, const std::string& name);

// The decoder's tensors: q, k, v in one tensor, gate and up in one.
Model decoder_shapes(const DecoderConfig& config, const std::string& name);

// The sizes that one rank computes with, after all cuts.
//
//   const DecoderSizes sizes = decoder_sizes(config, parallel);
//   sizes.qkv();   // columns of this rank's q, k, v of a token
struct DecoderSizes {
  int64_t length = 0;
  int64_t reach = 0;  // tokens that attention reaches
  int64_t micro_batch = 0;
  int64_t hidden = 0;
  int64_t groups = 0;     // key/value heads
  int64_t per_group = 0;  // query heads of each
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;       // rows of the embedding and of the head
  int64_t head_chunk = 0;  // tokens whose logits are in memory at once

  int64_t tokens() const { return length * micro_batch; }
  int64_t heads() const { return groups * per_group; }
  int64_t width() const { return heads() * head_dim; }
  int64_t group() const { return (per_group + 2) * head_dim; }
  int64_t qkv() const { return groups * group(); }
  // Gradients of the logits are kept for backward if all fit at once.
  bool keeps_logits() const { return head_chunk == tokens(); }
};

// UsageError names what tp does not divide.
DecoderSizes decoder_sizes(const DecoderConfig& config,
                           const Parallel& parallel);

// Sets the cosines and sines of the angles by which pairs of a query's or key's
// numbers are rotated: reach x head_dim / 2.
template <class Real>
void fill_angles(Real* cosines, Real* sines, const DecoderConfig& config);

// ExpertSizes are the sizes of the expert block of one layer on a rank.
//
//   const ExpertSizes sizes = expert_sizes(config, parallel);
//   float* rows = cutter.take<float>(sizes.most_rows() * sizes.hidden);
//
// A pair is a token with one of the experts chosen for it.
struct ExpertSizes {
  int64_t tokens = 0;
  int64_t length = 0;  // of a sequence
  int64_t hidden = 0;
  int64_t experts = 0;
  int64_t choices = 0;     // experts per token
  int64_t ffn = 0;         // of an expert, this tp rank's share
  int64_t shared_ffn = 0;  // of the shared experts together, likewise
  int64_t ranks = 1;       // that share the experts

  int64_t sequences() const { return tokens / length; }
  int64_t local() const { return experts / ranks; }  // experts on this rank
  int64_t pairs() const { return tokens * choices; }
  // The number of rows if all ranks send as many as possible to one expert, or
  // to this rank.
  int64_t most_rows_of_expert() const { return ranks * tokens; }
  int64_t most_rows() const {
    return most_rows_of_expert() * std::min(choices, local());
  }
};

// Requires a configuration that check_decoder accepts. UsageError names what
// the mesh does not divide.
ExpertSizes expert_sizes(const DecoderConfig& config, const Parallel& parallel);

// Divides one block of memory into arrays or, without a block, only counts, so
// that the same code computes the size and the layout.
//
//   Cutter count(nullptr);
//   lay_out(count);
//   Cutter cut(allocate(count.bytes()));
//   lay_out(cut);
class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}

  // Takes rows x cols elements, 128-byte aligned; returns null without a block.
  // Throws UsageError if the size overflows.
  template <class T>
  T* take(int64_t rows, int64_t cols = 1) {
    constexpr const char* kWhat = "memory of the decoder";
    constexpr int64_t kBorder = 128;
    const int64_t count = checked_mul(rows, cols, kWhat);
    const int64_t size =
        checked_mul(count, static_cast<int64_t>(sizeof(T)), kWhat);
    const int64_t padded = checked_add(size, kBorder - 1, kWhat);
    std::byte* place = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ = checked_add(bytes_, padded / kBorder * kBorder, kWhat);
    return reinterpret_cast<T*>(place);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace canzona::model
