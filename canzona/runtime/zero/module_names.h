// Modules as errors and traces call them: "embedding", "layer 3", "head".
#pragma once

#include <string>

#include "canzona/base/text.h"
#include "canzona/plan/modules.h"

namespace canzona {

inline std::string module_name(const Model& model, int32_t module) {
  if (module == 0) return "embedding";
  if (module == num_modules(model) - 1) return "head";
  return cat("layer ", module - 1);
}

}  // namespace canzona
