#include "canzona/model/weights.h"

#include <string>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona::model {
namespace {

// Returns -1 if there is none.
int32_t find_optional(const Model& shapes, const std::string& name) {
  for (size_t i = 0; i < shapes.tensors.size(); ++i)
    if (shapes.tensors[i].name == name) return static_cast<int32_t>(i);
  return -1;
}

int32_t find_tensor(const Model& shapes, const std::string& name) {
  const int32_t found = find_optional(shapes, name);
  if (found >= 0) return found;
  check_failed(__FILE__, __LINE__, "the model has the decoder's tensors",
               cat("no ", quoted(name), " in ", quoted(shapes.name)));
}

}  // namespace

LayerTensors layer_tensors(const Model& shapes, int64_t layer,
                           bool has_experts) {
  const std::string at = cat("model.layers.", layer, ".");
  const auto find = [&](const char* name) {
    return find_tensor(shapes, at + name);
  };
  LayerTensors t;
  t.input_norm = find("input_layernorm.weight");
  t.qkv = find("self_attn.qkv_proj.weight");
  t.query_norm = find_optional(shapes, at + "self_attn.q_norm.weight");
  t.key_norm = find_optional(shapes, at + "self_attn.k_norm.weight");
  t.o = find("self_attn.o_proj.weight");
  t.post_norm = find("post_attention_layernorm.weight");
  if (has_experts) return t;
  t.gate_up = find("mlp.gate_up_proj.weight");
  t.down = find("mlp.down_proj.weight");
  return t;
}

OuterTensors outer_tensors(const Model& shapes, bool tied) {
  OuterTensors t;
  t.embedding = find_tensor(shapes, "model.embed_tokens.weight");
  t.norm = find_tensor(shapes, "model.norm.weight");
  t.head = tied ? t.embedding : find_tensor(shapes, "lm_head.weight");
  return t;
}

}  // namespace canzona::model
