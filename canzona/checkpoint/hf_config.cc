#include "canzona/checkpoint/hf_config.h"

#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

void require(bool condition, const char* what) {
  if (!condition)
    throw UsageError(
        cat("config.json: neither Qwen3, Qwen3-MoE nor Llama has ", what));
}

void check(const Architecture& a) {
  require(a.latent.kv_rank == 0, "latent attention");
  require(a.experts.shared == 0, "shared experts");
  require(!a.mlp_bias, "a bias in the mlp");
  require(a.qk_norm || a.experts.count == 0,
          "experts without norms of queries and keys (model.qk_norm=off)");
}

void write_experts(JsonWriter& out, const HfNumbers& numbers) {
  const Architecture& a = numbers.architecture;
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < a.layers; ++layer)
    if (!a.experts.in_layer(layer)) dense.push_back(layer);
  out.field("num_experts", a.experts.count)
      .field("num_experts_per_tok", numbers.experts_per_token)
      .field("moe_intermediate_size", a.experts.ffn)
      .field("norm_topk_prob", numbers.normalize_top_k)
      .field("decoder_sparse_step", 1)
      .member("router_aux_loss_coef")
      .decimal(numbers.balance_coefficient)
      .field("output_router_logits", false);
  out.member("mlp_only_layers").values(dense);
}

void write_shape(JsonWriter& out, const Architecture& a) {
  out.field("vocab_size", a.vocab)
      .field("hidden_size", a.hidden)
      .field("intermediate_size", a.ffn)
      .field("num_hidden_layers", a.layers)
      .field("num_attention_heads", a.heads)
      .field("num_key_value_heads", a.kv_heads)
      .field("head_dim", a.head_dim)
      .field("tie_word_embeddings", a.tied)
      .field("attention_bias", a.attention_bias);
}

struct HfClass {
  const char* name;
  const char* model_type;
};

HfClass class_of(const Architecture& a) {
  if (a.experts.count > 0) return {"Qwen3MoeForCausalLM", "qwen3_moe"};
  if (a.qk_norm) return {"Qwen3ForCausalLM", "qwen3"};
  return {"LlamaForCausalLM", "llama"};
}

}  // namespace

std::string hf_model_type(const Architecture& architecture) {
  check(architecture);
  return class_of(architecture).model_type;
}

std::string hf_config(const HfNumbers& numbers) {
  const Architecture& a = numbers.architecture;
  check(a);
  const HfClass kind = class_of(a);
  JsonWriter out(2);
  out.begin_object().member("architectures").begin_array();
  out.value(kind.name).end_array();
  out.field("model_type", kind.model_type);
  write_shape(out, a);
  out.member("attention_dropout")
      .decimal(0)
      .field("hidden_act", "silu")
      .field("initializer_range", 0.02)
      .field("max_position_embeddings", numbers.length)
      .member("rms_norm_eps")
      .decimal(numbers.norm_epsilon)
      .member("rope_theta")
      .decimal(numbers.rope_base)
      .field("torch_dtype",
             numbers.type == StoredType::kF32 ? "float32" : "bfloat16")
      .field("use_cache", true);
  if (a.qk_norm)
    out.field("use_sliding_window", false);
  else
    out.field("mlp_bias", false);
  if (a.experts.count > 0) write_experts(out, numbers);
  return out.end_object().take() + "\n";
}

}  // namespace canzona
