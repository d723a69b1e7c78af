// A transformer small enough to be counted by hand, for tests. Per layer: proj
// 16x16 (columns), qkv 32x16 (rows; 2 groups of 2 query heads of 4 rows), fc1
// 48x16 (rows; gate and up), fc2 16x24 (columns) and a norm; an embedding and a
// head of 64x16 around them. 2,176 elements of matrices in each layer.
#pragma once

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan {

inline std::vector<Section> toy_qkv_sections() {
  return {{"q", {0, 8, 16, 2}, 4},
          {"k", {8, 4, 16, 2}, 2},
          {"v", {12, 4, 16, 2}, 2}};
}

inline std::vector<Section> toy_gate_up_sections() {
  return {{"gate", {0, 24, 24, 1}, 1}, {"up", {24, 24, 24, 1}, 1}};
}

// A vocabulary by 16: AdamW.
inline Tensor toy_vocabulary(const std::string& name, Role role) {
  Tensor t = matrix_tensor(name, 64, 16, Cut::kRows);
  t.role = role;
  t.matrix_rule = false;
  return t;
}

inline void add_toy_layer(int32_t layer, std::vector<Tensor>& tensors) {
  const std::string at = cat("layers.", layer, ".");
  tensors.push_back(matrix_tensor(at + "proj", 16, 16, Cut::kColumns, layer));
  tensors.back().sections = output_section(16, 4);
  tensors.push_back(matrix_tensor(at + "qkv", 32, 16, Cut::kRows, layer));
  tensors.back().sections = toy_qkv_sections();
  tensors.push_back(matrix_tensor(at + "fc1", 48, 16, Cut::kRows, layer));
  tensors.back().sections = toy_gate_up_sections();
  tensors.push_back(matrix_tensor(at + "fc2", 16, 24, Cut::kColumns, layer));
  tensors.push_back(adamw_tensor(at + "norm", 16, layer));
}

inline Model toy_model(int32_t layers = 2) {
  std::vector<Tensor> tensors{toy_vocabulary("embedding", Role::kEmbedding)};
  for (int32_t l = 0; l < layers; ++l) add_toy_layer(l, tensors);
  tensors.push_back(toy_vocabulary("head", Role::kHead));
  Model model = model_of(std::move(tensors));
  model.query_heads = 4;
  model.kv_heads = 2;
  model.fused = true;
  return model;
}

// The same with `experts` experts in each layer: up 8x16 (rows), down 16x8
// (columns), beside the dense tensors.
inline Model toy_moe(int32_t layers = 2, int32_t experts = 4) {
  Model model = toy_model(layers);
  for (int32_t l = 0; l < layers; ++l) {
    for (int32_t e = 0; e < experts; ++e) {
      const std::string at = cat("layers.", l, ".experts.", e, ".");
      model.tensors.push_back(matrix_tensor(at + "up", 8, 16, Cut::kRows, l));
      model.tensors.back().expert = e;
      model.tensors.push_back(
          matrix_tensor(at + "down", 16, 8, Cut::kColumns, l));
      model.tensors.back().expert = e;
    }
  }
  model.num_experts = experts;
  return model;
}

inline std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyInfo& s : strategies()) names.push_back(s.name);
  return names;
}

}  // namespace canzona::plan
