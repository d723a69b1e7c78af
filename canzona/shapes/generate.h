// The layers of which generate_model makes a model. Numbers have passed
// check_architecture.
#pragma once

#include "canzona/shapes/architecture.h"
#include "canzona/shapes/tensor_writer.h"

namespace canzona {

// "self_attn.": o, q, k, v or their latent kin.
void add_attention(const Architecture& a, bool fused, TensorWriter& out);
void add_attention_norms(const Architecture& a, TensorWriter& out);
void add_attention_biases(const Architecture& a, bool fused, TensorWriter& out);

// "linear_attn.": the matrices; then what has one dimension.
void add_linear_attention(const Architecture& a, TensorWriter& out);
void add_linear_vectors(const Architecture& a, TensorWriter& out);

// "mlp.": the gated mlp of a dense layer; router and experts of another.
void add_dense_mlp(const Architecture& a, bool fused, TensorWriter& out);
void add_dense_mlp_biases(const Architecture& a, bool fused, TensorWriter& out);
void add_experts(const Architecture& a, bool fused, TensorWriter& out);

// The whole of Body::kGpt2.
void add_gpt2(const Architecture& a, TensorWriter& out);

}  // namespace canzona
