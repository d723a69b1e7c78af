#include <algorithm>
#include <charconv>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/check_architecture.h"
#include "canzona/shapes/parts.h"

namespace canzona {
namespace {

void append_number(std::string& text, int64_t number) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

class Generator {
 public:
  Generator(const Architecture& a, const std::string& name, bool fused)
      : a_(a) {
    model_.name = name;
    model_.num_layers = static_cast<int32_t>(a.layers);
    model_.query_heads = a.heads;
    model_.kv_heads = a.latent.kv_rank > 0 ? a.heads : a.kv_heads;
    model_.fused = fused;
    model_.tensors.reserve(count_tensors(a, name, fused));
  }

  Model run() {
    prefix_ = "model.";
    add("embed_tokens.weight", {a_.vocab, a_.hidden}, Role::kEmbedding,
        Cut::kRows);
    for (int64_t layer = 0; layer < a_.layers; ++layer) add_layer(layer);
    layer_ = -1;
    prefix_ = "model.";
    add_norm("norm.weight", a_.hidden);
    prefix_.clear();
    if (!a_.tied) {
      add("lm_head.weight", {a_.vocab, a_.hidden}, Role::kHead, Cut::kRows);
    }
    return std::move(model_);
  }

 private:
  void add_layer(int64_t layer) {
    layer_ = static_cast<int32_t>(layer);
    prefix_ = "model.layers.";
    append_number(prefix_, layer);
    prefix_ += '.';
    const bool has_experts = a_.experts.in_layer(layer);
    a_.latent.kv_rank > 0 ? add_latent_attention() : add_attention();
    has_experts ? add_experts() : add_mlp("mlp.", a_.ffn);
    add_norms();
    if (a_.attention_bias) add_attention_biases();
    if (a_.mlp_bias && !has_experts) add_mlp_biases();
  }

  void add_attention() {
    const int64_t q = a_.heads * a_.head_dim;
    const int64_t kv = a_.kv_heads * a_.head_dim;
    add_matrix("self_attn.o_proj.weight", a_.hidden, q, Cut::kColumns);
    if (model_.fused) {
      add_matrix("self_attn.qkv_proj.weight", q + 2 * kv, a_.hidden, Cut::kRows,
                 qkv_parts(a_.heads, a_.kv_heads, a_.head_dim));
      return;
    }
    add_matrix("self_attn.q_proj.weight", q, a_.hidden, Cut::kRows,
               head_part("q", q, a_.heads));
    add_matrix("self_attn.k_proj.weight", kv, a_.hidden, Cut::kRows,
               head_part("k", kv, a_.kv_heads));
    add_matrix("self_attn.v_proj.weight", kv, a_.hidden, Cut::kRows,
               head_part("v", kv, a_.kv_heads));
  }

  void add_latent_attention() {
    const LatentNumbers& latent = a_.latent;
    const int64_t q = a_.heads * (latent.nope_dim + latent.rope_dim);
    add_matrix("self_attn.o_proj.weight", a_.hidden, a_.heads * latent.v_dim,
               Cut::kColumns);
    if (latent.q_rank > 0) {
      add_matrix("self_attn.q_a_proj.weight", latent.q_rank, a_.hidden,
                 Cut::kNone);
      add_matrix("self_attn.q_b_proj.weight", q, latent.q_rank, Cut::kRows);
    } else {
      add_matrix("self_attn.q_proj.weight", q, a_.hidden, Cut::kRows,
                 head_part("q", q, a_.heads));
    }
    add_matrix("self_attn.kv_a_proj_with_mqa.weight",
               latent.kv_rank + latent.rope_dim, a_.hidden, Cut::kNone);
    add_matrix("self_attn.kv_b_proj.weight",
               a_.heads * (latent.nope_dim + latent.v_dim), latent.kv_rank,
               Cut::kRows);
  }

  void add_mlp(std::string_view folder, int64_t ffn) {
    const size_t length = prefix_.size();
    prefix_ += folder;
    if (model_.fused) {
      add_matrix("gate_up_proj.weight", 2 * ffn, a_.hidden, Cut::kRows,
                 gate_up_parts(ffn));
    } else {
      add_matrix("gate_proj.weight", ffn, a_.hidden, Cut::kRows);
      add_matrix("up_proj.weight", ffn, a_.hidden, Cut::kRows);
    }
    add_matrix("down_proj.weight", a_.hidden, ffn, Cut::kColumns);
    prefix_.resize(length);
  }

  void add_experts() {
    const ExpertNumbers& experts = a_.experts;
    add("mlp.gate.weight", {experts.count, a_.hidden}, Role::kRouter,
        Cut::kNone);
    if (experts.shared > 0) {
      add_mlp("mlp.shared_experts.", experts.shared * experts.ffn);
    }
    const size_t length = prefix_.size();
    prefix_ += "mlp.experts.";
    const size_t folder = prefix_.size();
    for (int64_t expert = 0; expert < experts.count; ++expert) {
      append_number(prefix_, expert);
      expert_ = static_cast<int32_t>(expert);
      add_mlp(".", experts.ffn);
      prefix_.resize(folder);
    }
    expert_ = -1;
    prefix_.resize(length);
    model_.num_experts = static_cast<int32_t>(experts.count);
  }

  void add_norms() {
    add_norm("input_layernorm.weight", a_.hidden);
    if (a_.qk_norm) {
      add_norm("self_attn.q_norm.weight", a_.head_dim);
      add_norm("self_attn.k_norm.weight", a_.head_dim);
    }
    if (a_.latent.kv_rank > 0) {
      if (a_.latent.q_rank > 0) {
        add_norm("self_attn.q_a_layernorm.weight", a_.latent.q_rank);
      }
      add_norm("self_attn.kv_a_layernorm.weight", a_.latent.kv_rank);
    }
    add_norm("post_attention_layernorm.weight", a_.hidden);
  }

  void add_attention_biases() {
    add_bias("self_attn.o_proj.bias", a_.hidden, Cut::kNone);
    if (a_.latent.kv_rank > 0) return add_latent_biases();
    const int64_t q = a_.heads * a_.head_dim;
    const int64_t kv = a_.kv_heads * a_.head_dim;
    if (model_.fused) {
      return add_bias("self_attn.qkv_proj.bias", q + 2 * kv, Cut::kRows,
                      qkv_parts(a_.heads, a_.kv_heads, a_.head_dim));
    }
    add_bias("self_attn.q_proj.bias", q, Cut::kRows,
             head_part("q", q, a_.heads));
    add_bias("self_attn.k_proj.bias", kv, Cut::kRows,
             head_part("k", kv, a_.kv_heads));
    add_bias("self_attn.v_proj.bias", kv, Cut::kRows,
             head_part("v", kv, a_.kv_heads));
  }

  // Only the projections into the low rank have a bias.
  void add_latent_biases() {
    if (a_.latent.q_rank > 0) {
      add_bias("self_attn.q_a_proj.bias", a_.latent.q_rank, Cut::kNone);
    }
    add_bias("self_attn.kv_a_proj_with_mqa.bias",
             a_.latent.kv_rank + a_.latent.rope_dim, Cut::kNone);
  }

  void add_mlp_biases() {
    if (model_.fused) {
      add_bias("mlp.gate_up_proj.bias", 2 * a_.ffn, Cut::kRows,
               gate_up_parts(a_.ffn));
    } else {
      add_bias("mlp.gate_proj.bias", a_.ffn, Cut::kRows);
      add_bias("mlp.up_proj.bias", a_.ffn, Cut::kRows);
    }
    add_bias("mlp.down_proj.bias", a_.hidden, Cut::kNone);
  }

  void add_matrix(std::string_view suffix, int64_t rows, int64_t cols, Cut cut,
                  std::vector<Part> parts = {}) {
    add(suffix, {rows, cols}, Role::kMatrix, cut, std::move(parts));
  }

  void add_norm(std::string_view suffix, int64_t size) {
    add(suffix, {size}, Role::kNorm, Cut::kNone);
  }

  void add_bias(std::string_view suffix, int64_t size, Cut cut,
                std::vector<Part> parts = {}) {
    add(suffix, {size}, Role::kBias, cut, std::move(parts));
  }

  void add(std::string_view suffix, std::initializer_list<int64_t> shape,
           Role role, Cut cut, std::vector<Part> parts = {}) {
    Tensor& tensor = model_.tensors.emplace_back();
    tensor.name.reserve(prefix_.size() + suffix.size());
    tensor.name.append(prefix_).append(suffix);
    tensor.shape = shape;
    tensor.role = role;
    tensor.cut = cut;
    tensor.layer = layer_;
    tensor.expert = expert_;
    tensor.matrix_rule = role == Role::kMatrix;
    tensor.parts = std::move(parts);
    check_size(tensor);
  }

  void check_size(const Tensor& tensor) const {
    if (std::max(tensor.rows(), tensor.cols()) > kMaxDim) {
      throw UsageError(cat("model ", quoted(model_.name), ": tensor ",
                           quoted(tensor.name), " would be ", tensor.rows(),
                           " x ", tensor.cols(), ", a side is at most 2^40"));
    }
    checked_mul(tensor.rows(), tensor.cols(), tensor.name.c_str());
  }

  const Architecture& a_;
  Model model_;
  std::string prefix_;  // of the names to come
  int32_t layer_ = -1;
  int32_t expert_ = -1;
};

}  // namespace

bool ExpertNumbers::in_layer(int64_t layer) const {
  return count > 0 && layer >= first_layer && (layer + phase) % every == 0 &&
         !std::binary_search(dense_layers.begin(), dense_layers.end(), layer);
}

Model generate_model(const Architecture& architecture, const std::string& name,
                     bool fused) {
  check_architecture(architecture, name);
  return Generator(architecture, name, fused).run();
}

}  // namespace canzona
