#include "canzona/shapes/generate.h"

namespace canzona {
namespace {

// Weights are [in, out]: what other models cut by rows is cut by columns here.
// The columns of c_attn are all of q, all of k, all of v; an equal share of
// them is no set of heads, so that every tp rank keeps it whole.
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

}  // namespace

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

}  // namespace canzona
