// A plain list of names and shapes:
//
//   [{"name": "layers.0.mlp.up", "shape": [3072, 1024], "tp": "rows"},
//    {"name": "layers.0.norm", "shape": [1024], "role": "norm"}]
//
// "tp" (rows, columns, none) and "role" (matrix, embedding, head, router, norm,
// bias) are optional; without them the name decides.
#pragma once

#include <string>
#include <string_view>

#include "canzona/shapes/records.h"

namespace canzona {

// Messages name `file`.
TensorRecords read_shapes(std::string_view json, const std::string& file);

}  // namespace canzona
