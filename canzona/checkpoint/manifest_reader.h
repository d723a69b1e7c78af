// Parses the JSON of a manifest into the struct: bounded and type-checked, but
// without checking what it means. For manifest.cc.
#pragma once

#include <string>
#include <string_view>

#include "canzona/checkpoint/manifest.h"

namespace canzona {

inline constexpr const char* kManifestFormat = "canzona-checkpoint";

Manifest read_manifest_json(std::string_view text, const std::string& file);

}  // namespace canzona
