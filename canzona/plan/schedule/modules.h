// Modules: what is gathered and waited for together. Number 0 is the
// embedding, 1 … layers the layers, the last one the head with everything else
// outside the layers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "canzona/shapes/tensor.h"

namespace canzona {

inline int32_t num_modules(const Model& model) { return model.num_layers + 2; }

inline int32_t module_of(const Model& model, const Tensor& tensor) {
  if (tensor.layer >= 0) return 1 + tensor.layer;
  return tensor.role == Role::kEmbedding ? 0 : 1 + model.num_layers;
}

// True if the head is the embedding.
inline bool is_tied(const Model& model) {
  const auto has = [&](Role role) {
    return std::ranges::any_of(model.tensors,
                               [&](const Tensor& t) { return t.role == role; });
  };
  return has(Role::kEmbedding) && !has(Role::kHead);
}

}  // namespace canzona
