#include "canzona/shapes/generate.h"
#include "canzona/shapes/parts.h"

namespace canzona {
namespace {

using Folder = TensorWriter::Folder;

constexpr const char* kAttention = "self_attn.";

int64_t q_rows(const Architecture& a) {
  return (a.output_gate ? 2 : 1) * a.heads * a.head_dim;
}

// Head by head the query, then its gate.
std::vector<Part> q_parts(const Architecture& a) {
  if (!a.output_gate) return head_part("q", q_rows(a), a.heads);
  return group_parts(
      {{"q", a.head_dim, a.heads}, {"gate", a.head_dim, a.heads}}, a.heads);
}

std::vector<Part> all_parts(const Architecture& a) {
  if (a.packed) return qkv_block_parts(a.heads, a.kv_heads, a.head_dim);
  if (!a.output_gate) return qkv_parts(a.heads, a.kv_heads, a.head_dim);
  const int64_t q = a.heads / a.kv_heads * a.head_dim;
  return group_parts({{"q", q, a.heads},
                      {"gate", q, a.heads},
                      {"k", a.head_dim, a.kv_heads},
                      {"v", a.head_dim, a.kv_heads}},
                     a.kv_heads);
}

void add_latent_attention(const Architecture& a, TensorWriter& out) {
  const LatentNumbers& latent = a.latent;
  const int64_t q = a.heads * (latent.nope_dim + latent.rope_dim);
  out.matrix("o_proj.weight", a.hidden, a.heads * latent.v_dim, Cut::kColumns);
  if (latent.q_rank > 0) {
    out.matrix("q_a_proj.weight", latent.q_rank, a.hidden, Cut::kNone);
    out.matrix("q_b_proj.weight", q, latent.q_rank, Cut::kRows);
  } else {
    out.matrix("q_proj.weight", q, a.hidden, Cut::kRows,
               head_part("q", q, a.heads));
  }
  out.matrix("kv_a_proj_with_mqa.weight", latent.kv_rank + latent.rope_dim,
             a.hidden, Cut::kNone);
  out.matrix("kv_b_proj.weight", a.heads * (latent.nope_dim + latent.v_dim),
             latent.kv_rank, Cut::kRows);
}

// Only the projections into the low rank have a bias.
void add_latent_biases(const Architecture& a, TensorWriter& out) {
  if (a.latent.q_rank > 0) {
    out.bias("q_a_proj.bias", a.latent.q_rank, Cut::kNone);
  }
  out.bias("kv_a_proj_with_mqa.bias", a.latent.kv_rank + a.latent.rope_dim,
           Cut::kNone);
}

}  // namespace

void add_attention(const Architecture& a, bool fused, TensorWriter& out) {
  const Folder folder(out, kAttention);
  if (a.latent.kv_rank > 0) return add_latent_attention(a, out);
  const int64_t kv = a.kv_heads * a.head_dim;
  out.matrix("o_proj.weight", a.hidden, a.heads * a.head_dim, Cut::kColumns);
  if (fused) {
    out.matrix("qkv_proj.weight", q_rows(a) + 2 * kv, a.hidden, Cut::kRows,
               all_parts(a));
    return;
  }
  out.matrix("q_proj.weight", q_rows(a), a.hidden, Cut::kRows, q_parts(a));
  out.matrix("k_proj.weight", kv, a.hidden, Cut::kRows,
             head_part("k", kv, a.kv_heads));
  out.matrix("v_proj.weight", kv, a.hidden, Cut::kRows,
             head_part("v", kv, a.kv_heads));
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
                    all_parts(a));
  }
  out.bias("q_proj.bias", q_rows(a), Cut::kRows, q_parts(a));
  out.bias("k_proj.bias", kv, Cut::kRows, head_part("k", kv, a.kv_heads));
  out.bias("v_proj.bias", kv, Cut::kRows, head_part("v", kv, a.kv_heads));
}

// Rows of in_proj_qkvz and in_proj_ba lie by key head, those of the convolution
// one part after the other.
void add_linear_attention(const Architecture& a, TensorWriter& out) {
  const LinearNumbers& l = a.linear;
  const Folder folder(out, "linear_attn.");
  const int64_t keys = l.key_heads * l.key_dim;
  const int64_t values = l.value_heads * l.value_dim;
  const int64_t per_key = l.value_heads / l.key_heads;
  out.matrix("out_proj.weight", a.hidden, values, Cut::kColumns);
  out.matrix("in_proj_qkvz.weight", 2 * keys + 2 * values, a.hidden, Cut::kRows,
             group_parts({{"q", l.key_dim, l.key_heads},
                          {"k", l.key_dim, l.key_heads},
                          {"v", per_key * l.value_dim, l.value_heads},
                          {"z", per_key * l.value_dim, l.value_heads}},
                         l.key_heads));
  out.matrix("in_proj_ba.weight", 2 * l.value_heads, a.hidden, Cut::kRows,
             group_parts({{"b", per_key}, {"a", per_key}}, l.key_heads));
  Tensor& conv = out.add("conv1d.weight", {2 * keys + values, l.kernel},
                         Role::kMatrix, Cut::kRows,
                         group_parts({{"q", keys, l.key_heads},
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

}  // namespace canzona
