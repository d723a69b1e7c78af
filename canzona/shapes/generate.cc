#include "canzona/shapes/generate.h"

#include <algorithm>
#include <utility>

#include "canzona/shapes/check_architecture.h"

namespace canzona {
namespace {

void add_layer_norms(const Architecture& a, TensorWriter& out) {
  if (a.norms != NormPlaces::kAfter) {
    out.norm("input_layernorm.weight", a.hidden);
  }
  add_attention_norms(a, out);
  out.norm("post_attention_layernorm.weight", a.hidden);
  if (a.norms == NormPlaces::kAround) {
    out.norm("pre_feedforward_layernorm.weight", a.hidden);
  }
  if (a.norms != NormPlaces::kBefore) {
    out.norm("post_feedforward_layernorm.weight", a.hidden);
  }
}

void add_linear_layer_norms(const Architecture& a, TensorWriter& out) {
  out.norm("input_layernorm.weight", a.hidden);
  out.norm("post_attention_layernorm.weight", a.hidden);
  add_linear_vectors(a, out);
}

void add_layer(const Architecture& a, int64_t layer, bool fused,
               TensorWriter& out) {
  out.enter_layer("model.layers.", layer);
  const bool has_experts = a.experts.in_layer(layer);
  const bool is_linear = a.linear.in_layer(layer);
  is_linear ? add_linear_attention(a, out) : add_attention(a, fused, out);
  has_experts ? add_experts(a, fused, out) : add_dense_mlp(a, fused, out);
  is_linear ? add_linear_layer_norms(a, out) : add_layer_norms(a, out);
  if (a.attention_bias && !is_linear) add_attention_biases(a, fused, out);
  if (a.mlp_bias && !has_experts) add_dense_mlp_biases(a, fused, out);
}

void add_llama(const Architecture& a, bool fused, TensorWriter& out) {
  out.enter("model.");
  out.add("embed_tokens.weight", {a.vocab, a.hidden}, Role::kEmbedding,
          Cut::kRows);
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    add_layer(a, layer, fused, out);
  }
  out.enter("model.");
  out.norm("norm.weight", a.hidden);
  out.enter("");
  if (a.tied) return;
  out.add("lm_head.weight", {a.vocab, a.hidden}, Role::kHead, Cut::kRows);
}

int32_t experts_of(const Architecture& a) {
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (a.experts.in_layer(layer)) return static_cast<int32_t>(a.experts.count);
  }
  return 0;
}

}  // namespace

bool ExpertNumbers::in_layer(int64_t layer) const {
  return count > 0 && layer >= first_layer && (layer + phase) % every == 0 &&
         !std::binary_search(dense_layers.begin(), dense_layers.end(), layer);
}

bool LinearNumbers::in_layer(int64_t layer) const {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

Model generate_model(const Architecture& a, const std::string& name,
                     bool fused) {
  check_architecture(a, name);
  const bool is_fused = fused || a.packed;
  Model model;
  model.name = name;
  model.num_layers = static_cast<int32_t>(a.layers);
  model.num_experts = experts_of(a);
  model.experts_per_token =
      std::min<int64_t>(a.experts.per_token, model.num_experts);
  model.query_heads = a.heads;
  model.kv_heads = a.latent.kv_rank > 0 ? a.heads : a.kv_heads;
  model.fused = is_fused;
  model.tensors.reserve(count_tensors(a, name, is_fused));
  TensorWriter out(model);
  if (a.body == Body::kGpt2) {
    add_gpt2(a, out);
  } else {
    add_llama(a, is_fused, out);
  }
  return model;
}

}  // namespace canzona
