// HF config.json → the numbers of a model.
//
// Known model types are those of families.h. Of models with a nested
// text_config only the text part is read. Layers that predict the token after
// the next (DeepSeek-V3, GLM-4.5, Qwen3-Next) are left out.
#pragma once

#include <string>
#include <string_view>

#include "canzona/shapes/architecture.h"
#include "canzona/shapes/records.h"

namespace canzona {

// What a model in this file is called: the folder's name, for files that are
// called the same in every model.
std::string name_of_model_file(const std::string& path);

// UsageError lists all known types, or all missing keys of a known one.
Architecture read_config(std::string_view json, const std::string& file);

// What a config.json beside weights says of their heads and of experts per
// token. Any model type; keys that are absent or odd leave these unknown.
// UsageError only if the text is no JSON.
void read_heads(std::string_view json, const std::string& file,
                FileFacts& facts);

}  // namespace canzona
