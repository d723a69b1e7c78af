// A transformer described by a few numbers, and the tensors that follow from
// them. Presets and HF configurations both become an Architecture, so that a
// model has the same tensors wherever its numbers come from.
//
//   Architecture tiny{.layers = 2, .hidden = 64, .ffn = 256, .vocab = 1000,
//                     .heads = 4, .kv_heads = 2, .head_dim = 16};
//   Model model = generate_model(tiny, "tiny", /*fused=*/true);
//
// Model order: embedding; for each layer its matrices (o, q, k, v or qkv, then
// router, shared experts, experts or the mlp: gate, up, down), its norms, its
// biases; final norm; head. Biases of experts follow the expert.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/shapes/tensor.h"

namespace canzona::shapes {

// The names and layouts that checkpoints use for a layer's experts.
enum class ExpertLayout {
  kPlain,        // mlp.gate, mlp.experts.0.gate_proj, up_proj, down_proj
  kSparseBlock,  // Mixtral: block_sparse_moe.gate, experts.0.w1, w3, w2
  // gpt-oss: mlp.router with a bias; experts [E, in, out] with biases, whose
  // columns are gate and up by turns.
  kStacked,
};

// Which layers have experts, how many and how wide.
struct ExpertNumbers {
  int64_t count = 0;  // routed experts of such a layer; 0: all layers are dense
  int64_t ffn = 0;
  int64_t shared = 0;  // shared experts, stored as one mlp of shared * ffn
  int64_t first_layer = 0;
  int64_t every = 1;  // on layers with (layer + phase) % every == 0
  int64_t phase = 0;
  std::vector<int64_t> dense_layers = {};  // exceptions, ascending
  // The width of one shared expert that has a gate of its own; 0: none.
  int64_t gated_shared_ffn = 0;
  ExpertLayout layout = ExpertLayout::kPlain;
  int64_t per_token = 0;  // experts per token; 0: not known

  bool in_layer(int64_t layer) const;
};

// Multi-head latent attention: keys and values are projected through a low
// rank.
struct LatentNumbers {
  int64_t q_rank = 0;   // 0: q_proj in one piece
  int64_t kv_rank = 0;  // 0: plain attention
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
};

// Linear attention by the gated delta rule, which replaces the attention of
// some layers (Qwen3-Next).
struct LinearNumbers {
  int64_t key_heads = 0;  // 0: no such layers
  int64_t value_heads = 0;
  int64_t key_dim = 0;  // per head
  int64_t value_dim = 0;
  int64_t kernel = 0;                // taps of the convolution over time
  std::vector<int64_t> layers = {};  // ascending

  bool in_layer(int64_t layer) const;
};

// A tower of vision beside the text model (Qwen2.5-VL): patches, blocks, and a
// merger that projects to the text model's width.
struct VisionNumbers {
  int64_t depth = 0;  // 0: none
  int64_t hidden = 0;
  int64_t heads = 1;
  int64_t ffn = 0;
  int64_t channels = 0;
  int64_t frames = 0;  // of a patch
  int64_t patch = 0;   // pixels, each way
  int64_t merge = 0;   // patches, each way, that become a token
};

// The norms of a layer around attention and mlp.
enum class NormPlaces {
  kBefore,  // input_layernorm, post_attention_layernorm
  kAfter,   // OLMo 2: post_attention_layernorm, post_feedforward_layernorm
  kAround,  // Gemma 2 and 3: both
};

enum class Body {
  kLlama,
  // Learned positions, LayerNorms and biases everywhere, weights [in, out].
  kGpt2,
};

struct Architecture {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool tied = false;  // the head is the embedding
  bool qk_norm = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  ExpertNumbers experts = {};
  LatentNumbers latent = {};
  LinearNumbers linear = {};
  VisionNumbers vision = {};
  bool o_bias = true;         // with attention_bias: o has one, too
  bool wide_qk_norm = false;  // with qk_norm: over all heads at once
  bool sinks = false;         // a learned logit per query head
  bool output_gate = false;   // q_proj has a gate beside every query head
  // Checkpoints store q, k, v (one after the other) and gate, up in one tensor.
  bool packed = false;
  NormPlaces norms = NormPlaces::kBefore;
  Body body = Body::kLlama;
  int64_t positions = 0;  // Body::kGpt2 only
};

// UsageError names `name` and what is out of bounds, before anything is
// allocated. `fused` puts q, k, v in one tensor, and gate and up in one, even
// if checkpoints of this architecture have them apart.
Model generate_model(const Architecture& architecture, const std::string& name,
                     bool fused);

// The bounds of an Architecture.

// UsageError names the number that is out of bounds or does not divide.
// Afterwards every width that generate_model computes fits 64 bits.
void check_architecture(const Architecture& architecture,
                        const std::string& name);

// Returns an upper bound on the number of tensors that generate_model makes,
// less than 20 per layer too high. Throws UsageError above kMaxTensors.
int64_t count_tensors(const Architecture& architecture, const std::string& name,
                      bool fused);

// Known models by name.

// Returns nullptr if there is no such preset. The preset lives as long as the
// program.
const Architecture* find_preset(std::string_view name);

// Makes a model smaller: fewer layers, every width divided. The numbers of
// heads and experts stay, so that a mesh that fits the large model fits the
// small one.
//
//   Architecture small = scaled_down(*find_preset("qwen3-1.7b"), 8, "qwen3");
//   keep_layers(model, 4);

// "1/8" → 8; "1" → 1. UsageError names what came.
int64_t parse_scale(std::string_view text);

// Divides hidden size, ffn, head dim and low ranks by `divisor` and rounds the
// vocabulary up. UsageError names a width of model `name` that `divisor` does
// not divide.
Architecture scaled_down(const Architecture& architecture, int64_t divisor,
                         const std::string& name);

// Keeps the first `count` layers and everything outside the layers. Throws
// UsageError if the model has fewer.
void keep_layers(Model& model, int64_t count);

}  // namespace canzona::shapes
