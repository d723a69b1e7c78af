// Models in: a preset's name, an HF config.json, a safetensors file or index,
// or a plain list of names and shapes. Only names and shapes are read, never
// data.
//
//   Model model = read_model("qwen3-32b", {.fused = true});
//   route(model, {{"*.k_proj.weight", false}});   // these to AdamW
//
// Files are untrusted: sizes are bounded and checked; UsageError names the
// file, the tensor, what was expected and what came.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

struct ReadOptions {
  bool fused = false;  // presets and configs: qkv and gate+up in one tensor
};

// `source` is a preset's name or a path. The kind of a file is told from its
// contents: safetensors, index, config or list of shapes.
Model read_model(const std::string& source, const ReadOptions& options);

// The same for text that is already in memory (tests and fuzzing).
Model model_from_config(std::string_view json, const std::string& name,
                        const ReadOptions& options);
Model model_from_shapes(std::string_view json, const std::string& name);
Model model_from_safetensors_header(std::string_view file_start,
                                    int64_t file_size, const std::string& name);

struct PresetInfo {
  std::string name;
  std::string description;  // "64 layers, hidden 5120, 64/8 heads, ffn 25600"
};
const std::vector<PresetInfo>& presets();

// Default routing (matrix role → matrix rule, everything else AdamW), then
// overrides in order: every tensor whose name matches `pattern`.
struct RouteOverride {
  std::string pattern;
  bool matrix_rule = true;
};
void route(Model& model, const std::vector<RouteOverride>& overrides);

}  // namespace canzona
