// Generates the tensors of an Architecture.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/shapes/architecture.h"

namespace canzona::shapes {
namespace {

// Appends the tensors of a described model, under a prefix that is entered and
// left like a folder.
//
//   TensorWriter out(model);
//   out.enter_layer("model.layers.", 3);
//   const TensorWriter::Folder folder(out, "mlp.");
//   out.matrix("up_proj.weight", 3072, 1024, Cut::kRows);
//
// UsageError names a tensor that is too large. The model must outlive the
// writer.
class TensorWriter {
 public:
  explicit TensorWriter(Model& model) : model_(model) {}

  // Makes further names begin with `prefix`, outside the layers.
  void enter(std::string_view prefix);
  // Makes further names begin with `prefix`, the layer's number and a dot.
  void enter_layer(std::string_view prefix, int64_t layer);
  void set_expert(int64_t expert) { expert_ = static_cast<int32_t>(expert); }

  Tensor& add(std::string_view suffix, std::initializer_list<int64_t> shape,
              Role role, Cut cut, std::vector<Section> sections = {});
  void matrix(std::string_view suffix, int64_t rows, int64_t cols, Cut cut,
              std::vector<Section> sections = {});
  void norm(std::string_view suffix, int64_t size, Cut cut = Cut::kNone);
  void bias(std::string_view suffix, int64_t size, Cut cut,
            std::vector<Section> sections = {});

  // Extends the prefix while it lives.
  class Folder {
   public:
    Folder(TensorWriter& out, std::string_view name);
    Folder(TensorWriter& out, int64_t number);
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { out_.prefix_.resize(length_); }

   private:
    TensorWriter& out_;
    size_t length_;
  };

 private:
  void check_size(const Tensor& tensor) const;

  Model& model_;
  std::string prefix_;
  int32_t layer_ = -1;
  int32_t expert_ = -1;
};

void append_number(std::string& text, int64_t number) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

void TensorWriter::enter(std::string_view prefix) {
  prefix_ = prefix;
  layer_ = -1;
}

void TensorWriter::enter_layer(std::string_view prefix, int64_t layer) {
  prefix_ = prefix;
  append_number(prefix_, layer);
  prefix_ += '.';
  layer_ = static_cast<int32_t>(layer);
}

Tensor& TensorWriter::add(std::string_view suffix,
                          std::initializer_list<int64_t> shape, Role role,
                          Cut cut, std::vector<Section> sections) {
  Tensor& tensor = model_.tensors.emplace_back();
  tensor.name.reserve(prefix_.size() + suffix.size());
  tensor.name.append(prefix_).append(suffix);
  tensor.shape = shape;
  tensor.role = role;
  tensor.cut = cut;
  tensor.layer = layer_;
  tensor.expert = expert_;
  tensor.matrix_rule = role == Role::kMatrix;
  tensor.sections = std::move(sections);
  check_size(tensor);
  return tensor;
}

void TensorWriter::matrix(std::string_view suffix, int64_t rows, int64_t cols,
                          Cut cut, std::vector<Section> sections) {
  add(suffix, {rows, cols}, Role::kMatrix, cut, std::move(sections));
}

void TensorWriter::norm(std::string_view suffix, int64_t size, Cut cut) {
  add(suffix, {size}, Role::kNorm, cut);
}

void TensorWriter::bias(std::string_view suffix, int64_t size, Cut cut,
                        std::vector<Section> sections) {
  add(suffix, {size}, Role::kBias, cut, std::move(sections));
}

TensorWriter::Folder::Folder(TensorWriter& out, std::string_view name)
    : out_(out), length_(out.prefix_.size()) {
  out.prefix_ += name;
}

TensorWriter::Folder::Folder(TensorWriter& out, int64_t number)
    : out_(out), length_(out.prefix_.size()) {
  append_number(out.prefix_, number);
}

void TensorWriter::check_size(const Tensor& tensor) const {
  if (std::max(tensor.rows(), tensor.cols()) > kMaxDim) {
    throw UsageError(cat("model ", quoted(model_.name), ": tensor ",
                         quoted(tensor.name), " would be ", tensor.rows(),
                         " x ", tensor.cols(), ", a side is at most 2^40"));
  }
  checked_mul(tensor.rows(), tensor.cols(), tensor.name.c_str());
}

using Folder = TensorWriter::Folder;

constexpr const char* kAttention = "self_attn.";

int64_t q_rows(const Architecture& a) {
  return (a.output_gate ? 2 : 1) * a.heads * a.head_dim;
}

// Each head has its query, then its gate.
std::vector<Section> q_sections(const Architecture& a) {
  if (!a.output_gate) return head_section("q", q_rows(a), a.heads);
  return group_sections(
      {{"q", a.head_dim, a.heads}, {"gate", a.head_dim, a.heads}}, a.heads);
}

std::vector<Section> all_sections(const Architecture& a) {
  if (a.packed) return qkv_block_sections(a.heads, a.kv_heads, a.head_dim);
  if (!a.output_gate) return qkv_sections(a.heads, a.kv_heads, a.head_dim);
  const int64_t q = a.heads / a.kv_heads * a.head_dim;
  return group_sections({{"q", q, a.heads},
                         {"gate", q, a.heads},
                         {"k", a.head_dim, a.kv_heads},
                         {"v", a.head_dim, a.kv_heads}},
                        a.kv_heads);
}

void add_latent_attention(const Architecture& a, TensorWriter& out) {
  const LatentNumbers& latent = a.latent;
  const int64_t q = a.heads * (latent.nope_dim + latent.rope_dim);
  out.matrix("o_proj.weight", a.hidden, a.heads * latent.v_dim, Cut::kColumns,
             output_section(a.hidden, a.heads));
  if (latent.q_rank > 0) {
    out.matrix("q_a_proj.weight", latent.q_rank, a.hidden, Cut::kNone);
    out.matrix("q_b_proj.weight", q, latent.q_rank, Cut::kRows,
               head_section("q", q, a.heads));
  } else {
    out.matrix("q_proj.weight", q, a.hidden, Cut::kRows,
               head_section("q", q, a.heads));
  }
  out.matrix("kv_a_proj_with_mqa.weight", latent.kv_rank + latent.rope_dim,
             a.hidden, Cut::kNone);
  // Each head has the part of its key that is not rotated, then its value.
  out.matrix("kv_b_proj.weight", a.heads * (latent.nope_dim + latent.v_dim),
             latent.kv_rank, Cut::kRows,
             group_sections({{"k", latent.nope_dim, a.heads},
                             {"v", latent.v_dim, a.heads}},
                            a.heads));
}

// Only the projections into the low rank have a bias.
void add_latent_biases(const Architecture& a, TensorWriter& out) {
  if (a.latent.q_rank > 0) {
    out.bias("q_a_proj.bias", a.latent.q_rank, Cut::kNone);
  }
  out.bias("kv_a_proj_with_mqa.bias", a.latent.kv_rank + a.latent.rope_dim,
           Cut::kNone);
}

void add_attention(const Architecture& a, bool fused, TensorWriter& out) {
  const Folder folder(out, kAttention);
  if (a.latent.kv_rank > 0) return add_latent_attention(a, out);
  const int64_t kv = a.kv_heads * a.head_dim;
  out.matrix("o_proj.weight", a.hidden, a.heads * a.head_dim, Cut::kColumns,
             output_section(a.hidden, a.heads));
  if (fused) {
    out.matrix("qkv_proj.weight", q_rows(a) + 2 * kv, a.hidden, Cut::kRows,
               all_sections(a));
    return;
  }
  out.matrix("q_proj.weight", q_rows(a), a.hidden, Cut::kRows, q_sections(a));
  out.matrix("k_proj.weight", kv, a.hidden, Cut::kRows,
             head_section("k", kv, a.kv_heads));
  out.matrix("v_proj.weight", kv, a.hidden, Cut::kRows,
             head_section("v", kv, a.kv_heads));
}

void add_attention_norms(const Architecture& a, TensorWriter& out) {
  const Folder folder(out, kAttention);
  if (a.qk_norm) {
    const int64_t q_heads = a.wide_qk_norm ? a.heads : 1;
    const int64_t k_heads = a.wide_qk_norm ? a.kv_heads : 1;
    out.norm("q_norm.weight", q_heads * a.head_dim);
    out.norm("k_norm.weight", k_heads * a.head_dim);
  }
  if (a.latent.kv_rank > 0) {
    if (a.latent.q_rank > 0) {
      out.norm("q_a_layernorm.weight", a.latent.q_rank);
    }
    out.norm("kv_a_layernorm.weight", a.latent.kv_rank);
  }
  if (a.sinks) out.norm("sinks", a.heads, Cut::kRows);
}

void add_attention_biases(const Architecture& a, bool fused,
                          TensorWriter& out) {
  const Folder folder(out, kAttention);
  if (a.o_bias) out.bias("o_proj.bias", a.hidden, Cut::kNone);
  if (a.latent.kv_rank > 0) return add_latent_biases(a, out);
  const int64_t kv = a.kv_heads * a.head_dim;
  if (fused) {
    return out.bias("qkv_proj.bias", q_rows(a) + 2 * kv, Cut::kRows,
                    all_sections(a));
  }
  out.bias("q_proj.bias", q_rows(a), Cut::kRows, q_sections(a));
  out.bias("k_proj.bias", kv, Cut::kRows, head_section("k", kv, a.kv_heads));
  out.bias("v_proj.bias", kv, Cut::kRows, head_section("v", kv, a.kv_heads));
}

// Rows of in_proj_qkvz and in_proj_ba are ordered by key head; those of the
// convolution are one section after the other.
void add_linear_attention(const Architecture& a, TensorWriter& out) {
  const LinearNumbers& l = a.linear;
  const Folder folder(out, "linear_attn.");
  const int64_t keys = l.key_heads * l.key_dim;
  const int64_t values = l.value_heads * l.value_dim;
  const int64_t per_key = l.value_heads / l.key_heads;
  out.matrix("out_proj.weight", a.hidden, values, Cut::kColumns,
             output_section(a.hidden, l.value_heads));
  out.matrix("in_proj_qkvz.weight", 2 * keys + 2 * values, a.hidden, Cut::kRows,
             group_sections({{"q", l.key_dim, l.key_heads},
                             {"k", l.key_dim, l.key_heads},
                             {"v", per_key * l.value_dim, l.value_heads},
                             {"z", per_key * l.value_dim, l.value_heads}},
                            l.key_heads));
  out.matrix("in_proj_ba.weight", 2 * l.value_heads, a.hidden, Cut::kRows,
             group_sections({{"b", per_key}, {"a", per_key}}, l.key_heads));
  Tensor& conv = out.add("conv1d.weight", {2 * keys + values, l.kernel},
                         Role::kMatrix, Cut::kRows,
                         group_sections({{"q", keys, l.key_heads},
                                         {"k", keys, l.key_heads},
                                         {"v", values, l.value_heads}},
                                        1));
  conv.flattened = true;
  conv.matrix_rule = false;
}

void add_linear_vectors(const Architecture& a, TensorWriter& out) {
  const Folder folder(out, "linear_attn.");
  out.norm("norm.weight", a.linear.value_dim);
  out.norm("A_log", a.linear.value_heads, Cut::kRows);
  out.bias("dt_bias", a.linear.value_heads, Cut::kRows);
}

using Folder = TensorWriter::Folder;

struct MlpNames {
  const char* gate;
  const char* up;
  const char* gate_up;
  const char* down;
};
constexpr MlpNames kUsual{"gate_proj.weight", "up_proj.weight",
                          "gate_up_proj.weight", "down_proj.weight"};
constexpr MlpNames kMixtral{"w1.weight", "w3.weight", "w13.weight",
                            "w2.weight"};

void add_mlp(const MlpNames& names, int64_t hidden, int64_t ffn, bool fused,
             TensorWriter& out) {
  if (fused) {
    out.matrix(names.gate_up, 2 * ffn, hidden, Cut::kRows,
               gate_up_sections(ffn));
  } else {
    out.matrix(names.gate, ffn, hidden, Cut::kRows);
    out.matrix(names.up, ffn, hidden, Cut::kRows);
  }
  out.matrix(names.down, hidden, ffn, Cut::kColumns);
}

// Weights are [in, out]. Gate and up alternate, so an equal share of the
// columns has both.
void add_stacked_expert(int64_t hidden, int64_t ffn, TensorWriter& out) {
  out.matrix("gate_up_proj", hidden, 2 * ffn, Cut::kColumns);
  out.matrix("down_proj", ffn, hidden, Cut::kRows);
  out.bias("gate_up_proj_bias", 2 * ffn, Cut::kRows);
  out.bias("down_proj_bias", hidden, Cut::kNone);
}

void add_router(const Architecture& a, TensorWriter& out) {
  const int64_t count = a.experts.count;
  const bool stacked = a.experts.layout == ExpertLayout::kStacked;
  out.add(stacked ? "router.weight" : "gate.weight", {count, a.hidden},
          Role::kRouter, Cut::kNone);
  if (stacked) out.bias("router.bias", count, Cut::kNone);
}

void add_shared_experts(const Architecture& a, bool fused, TensorWriter& out) {
  const ExpertNumbers& experts = a.experts;
  if (experts.shared > 0) {
    const Folder folder(out, "shared_experts.");
    add_mlp(kUsual, a.hidden, experts.shared * experts.ffn, fused, out);
  }
  if (experts.gated_shared_ffn > 0) {
    out.add("shared_expert_gate.weight", {1, a.hidden}, Role::kRouter,
            Cut::kNone);
    const Folder folder(out, "shared_expert.");
    add_mlp(kUsual, a.hidden, experts.gated_shared_ffn, fused, out);
  }
}

void add_dense_mlp(const Architecture& a, bool fused, TensorWriter& out) {
  const Folder folder(out, "mlp.");
  add_mlp(kUsual, a.hidden, a.ffn, fused, out);
}

void add_dense_mlp_biases(const Architecture& a, bool fused,
                          TensorWriter& out) {
  const Folder folder(out, "mlp.");
  if (fused) {
    out.bias("gate_up_proj.bias", 2 * a.ffn, Cut::kRows,
             gate_up_sections(a.ffn));
  } else {
    out.bias("gate_proj.bias", a.ffn, Cut::kRows);
    out.bias("up_proj.bias", a.ffn, Cut::kRows);
  }
  out.bias("down_proj.bias", a.hidden, Cut::kNone);
}

void add_experts(const Architecture& a, bool fused, TensorWriter& out) {
  const ExpertNumbers& experts = a.experts;
  const bool mixtral = experts.layout == ExpertLayout::kSparseBlock;
  const Folder block(out, mixtral ? "block_sparse_moe." : "mlp.");
  add_router(a, out);
  add_shared_experts(a, fused, out);
  const Folder folder(out, "experts.");
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    const Folder number(out, expert);
    const Folder dot(out, ".");
    out.set_expert(expert);
    if (experts.layout == ExpertLayout::kStacked) {
      add_stacked_expert(a.hidden, experts.ffn, out);
    } else {
      add_mlp(mixtral ? kMixtral : kUsual, a.hidden, experts.ffn, fused, out);
    }
  }
  out.set_expert(-1);
}

// Weights are [in, out], so matrices that other models cut by rows are cut by
// columns here. The columns of c_attn are all of q, all of k, all of v; an
// equal share of them is not a set of heads, so every tp rank keeps it whole.
void add_gpt2_layer(const Architecture& a, TensorWriter& out) {
  out.matrix("attn.c_proj.weight", a.hidden, a.hidden, Cut::kRows);
  out.matrix("attn.c_attn.weight", a.hidden, 3 * a.hidden, Cut::kNone);
  out.matrix("mlp.c_fc.weight", a.hidden, a.ffn, Cut::kColumns);
  out.matrix("mlp.c_proj.weight", a.ffn, a.hidden, Cut::kRows);
  out.norm("ln_1.weight", a.hidden);
  out.norm("ln_2.weight", a.hidden);
  out.bias("ln_1.bias", a.hidden, Cut::kNone);
  out.bias("ln_2.bias", a.hidden, Cut::kNone);
  out.bias("attn.c_proj.bias", a.hidden, Cut::kNone);
  out.bias("attn.c_attn.bias", 3 * a.hidden, Cut::kNone);
  out.bias("mlp.c_fc.bias", a.ffn, Cut::kRows);
  out.bias("mlp.c_proj.bias", a.hidden, Cut::kNone);
}

void add_gpt2(const Architecture& a, TensorWriter& out) {
  out.enter("transformer.");
  out.add("wte.weight", {a.vocab, a.hidden}, Role::kEmbedding, Cut::kRows);
  out.add("wpe.weight", {a.positions, a.hidden}, Role::kEmbedding, Cut::kNone);
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    out.enter_layer("transformer.h.", layer);
    add_gpt2_layer(a, out);
  }
  out.enter("transformer.");
  out.norm("ln_f.weight", a.hidden);
  out.bias("ln_f.bias", a.hidden, Cut::kNone);
  out.enter("");
  if (a.tied) return;
  out.add("lm_head.weight", {a.vocab, a.hidden}, Role::kHead, Cut::kRows);
}

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

void add_biased(TensorWriter& out, std::string_view name, int64_t rows,
                int64_t cols, const std::vector<Section>& sections = {}) {
  const Folder folder(out, name);
  out.matrix(".weight", rows, cols, Cut::kNone, sections);
  const bool by_columns = is_output(sections);  // which a bias has not
  out.bias(".bias", rows, Cut::kNone,
           by_columns ? std::vector<Section>{} : sections);
}

// The tower is outside the layers, and every tp rank keeps it whole.
void add_vision(const VisionNumbers& v, int64_t width, TensorWriter& out) {
  if (v.depth == 0) return;
  out.enter("visual.");
  Tensor& patches =
      out.add("patch_embed.proj.weight",
              {v.hidden, v.channels * v.frames * v.patch * v.patch},
              Role::kMatrix, Cut::kNone);
  patches.flattened = true;
  patches.matrix_rule = false;
  for (int64_t block = 0; block < v.depth; ++block) {
    const Folder blocks(out, "blocks.");
    const Folder number(out, block);
    const Folder dot(out, ".");
    out.norm("norm1.weight", v.hidden);
    out.norm("norm2.weight", v.hidden);
    add_biased(out, "attn.qkv", 3 * v.hidden, v.hidden,
               qkv_block_sections(v.heads, v.heads, v.hidden / v.heads));
    add_biased(out, "attn.proj", v.hidden, v.hidden,
               output_section(v.hidden, v.heads));
    add_biased(out, "mlp.gate_proj", v.ffn, v.hidden);
    add_biased(out, "mlp.up_proj", v.ffn, v.hidden);
    add_biased(out, "mlp.down_proj", v.hidden, v.ffn);
  }
  const int64_t merged = v.hidden * v.merge * v.merge;
  const Folder merger(out, "merger.");
  out.norm("ln_q.weight", v.hidden);
  add_biased(out, "mlp.0", merged, merged);
  add_biased(out, "mlp.2", width, merged);
}

void add_llama(const Architecture& a, bool fused, TensorWriter& out) {
  out.enter("model.");
  out.add("embed_tokens.weight", {a.vocab, a.hidden}, Role::kEmbedding,
          Cut::kRows);
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    add_layer(a, layer, fused, out);
  }
  add_vision(a.vision, a.hidden, out);
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

}  // namespace canzona::shapes
