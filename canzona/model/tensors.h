// Numbers of the decoder's tensors in its model.
//
//   LayerTensors t = layer_tensors(shapes, 3);
//   weights.parameter(t.qkv);
#pragma once

#include <cstdint>

#include "canzona/shapes/tensor.h"

namespace canzona {

struct LayerTensors {
  int32_t input_norm = -1;
  int32_t qkv = -1;
  int32_t query_norm = -1;
  int32_t key_norm = -1;
  int32_t o = -1;
  int32_t post_norm = -1;
  int32_t gate_up = -1;  // -1: the layer has experts
  int32_t down = -1;
};

struct OuterTensors {
  int32_t embedding = -1;
  int32_t norm = -1;
  int32_t head = -1;  // the embedding, if it is tied
};

// InternalError if the model has no such tensor.
LayerTensors layer_tensors(const Model& shapes, int64_t layer,
                           bool has_experts);
OuterTensors outer_tensors(const Model& shapes, bool tied);

}  // namespace canzona
