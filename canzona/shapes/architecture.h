// A transformer in a few numbers, and the tensors that follow from them.
// Presets and HF configurations both become an Architecture, so that the same
// model gives the same tensors wherever its numbers came from.
//
//   Architecture tiny{.layers = 2, .hidden = 64, .ffn = 256, .vocab = 1000,
//                     .heads = 4, .kv_heads = 2, .head_dim = 16};
//   Model model = generate_model(tiny, "tiny", /*fused=*/true);
//
// Model order: embedding; of each layer its matrices (o, q, k, v or qkv, then
// router, shared experts, experts or the mlp: gate, up, down), its norms, its
// biases; final norm; head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

// Which layers have experts, and how many and how wide.
struct ExpertNumbers {
  int64_t count = 0;  // routed experts of such a layer; 0: all layers are dense
  int64_t ffn = 0;
  int64_t shared = 0;  // shared experts, held as one mlp of shared * ffn
  int64_t first_layer = 0;
  int64_t every = 1;  // layers with (layer + phase) % every == 0
  int64_t phase = 0;
  std::vector<int64_t> dense_layers = {};  // exceptions, ascending

  bool in_layer(int64_t layer) const;
};

// Multi-head latent attention: keys and values through a low rank.
struct LatentNumbers {
  int64_t q_rank = 0;   // 0: q_proj in one piece
  int64_t kv_rank = 0;  // 0: plain attention
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
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
};

// UsageError names `name` and what is out of bounds, before anything is
// allocated. `fused`: q, k, v in one tensor, gate and up in one tensor.
Model generate_model(const Architecture& architecture, const std::string& name,
                     bool fused);

}  // namespace canzona
