// The same model, smaller: fewer layers, every width divided. Heads and experts
// keep their number, so that a mesh fits the small model where it fits the
// large one.
//
//   Architecture small = scaled_down(*find_preset("qwen3-1.7b"), 8, "qwen3");
//   keep_layers(model, 4);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/shapes/architecture.h"

namespace canzona {

// "1/8" → 8; "1" → 1. UsageError names what came.
int64_t parse_scale(std::string_view text);

// Hidden size, ffn, head dim and low ranks divided by `divisor`, the vocabulary
// rounded up. UsageError names the width of model `name` that it does not
// divide.
Architecture scaled_down(const Architecture& architecture, int64_t divisor,
                         const std::string& name);

// Leaves the first `count` layers and what is outside the layers. UsageError if
// the model has fewer.
void keep_layers(Model& model, int64_t count);

}  // namespace canzona
