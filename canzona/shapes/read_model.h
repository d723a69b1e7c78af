// Reads models: a preset's name, an HF config.json, a safetensors file or
// index, or a plain list of names and shapes. Only names and shapes are read,
// never data.
//
//   Model model = read_model("qwen3-32b", {.fused = true});
//   route(model, {{"*.qkv_proj.weight", false}});   // these to AdamW
//
// Files are untrusted: sizes are bounded and checked; UsageError names the
// file, the tensor, what was expected and what came.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

struct ReadOptions {
  // For presets and configs: puts qkv, and gate and up, in one tensor. Files
  // list tensors as they are, so asking for it there is a UsageError.
  bool fused = false;
  // Keeps only this many layers, the first ones; 0 keeps all.
  int64_t layers = 0;
  // For presets and configs: divides every width by this (scaled_down).
  int64_t divisor = 1;
};

// `source` is a preset's name or a path. The kind of a file is recognized by
// its contents: safetensors, index, config or list of shapes. In a folder the
// first of model.safetensors.index.json, model.safetensors and config.json is
// read.
//
// Roles, cuts, layers and experts of files come from the names (names.h):
// - Heads are known if a config.json lies beside the weights, and then
// sections.
// - Packed experts [E, a, b] become E tensors with the expert's number in their
//   name; those that lie transposed are neither cut nor split.
// - Other tensors of more than two dimensions are flattened, for AdamW.
// - Tensors in weights that are not parameters (rotary frequencies, scales of
//   quantized weights, balancing offsets of routers) are left out.
Model read_model(const std::string& source, const ReadOptions& options);

// The same for text in memory (tests and fuzzing). Nothing is left out, and
// only the text is used.
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

// Applies the default routing (matrix role → matrix rule, everything else
// AdamW), then the overrides in order, to every tensor whose name matches
// `pattern`. Throws UsageError if a pattern matches nothing or sends a
// one-dimensional tensor to the matrix rule. Models that were just read have
// the default routing.
struct RouteOverride {
  std::string pattern;
  bool matrix_rule = true;
};
void route(Model& model, const std::vector<RouteOverride>& overrides);

// Excludes tensors whose name matches a pattern from all updates. Call it after
// route(). Throws UsageError if a pattern matches nothing.
void freeze(Model& model, const std::vector<std::string>& patterns);

}  // namespace canzona
