// Modules and buckets as errors and traces call them: "embedding", "layer 3",
// "head"; "bucket 7" where tensors are not cut into slices.
#pragma once

#include <string>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {

inline std::string module_name(const Model& model, int32_t module) {
  if (module == 0) return "embedding";
  if (module == num_modules(model) - 1) return "head";
  return cat("layer ", module - 1);
}

// If slices travel, a bucket is a module, or a part of one.
inline std::string bucket_name(const PlanPart& part, int32_t bucket) {
  if (part.grid.places == 1) return cat("bucket ", bucket);
  const int32_t first =
      part.buckets[static_cast<size_t>(bucket)].tensors.front();
  return module_name(
      part.model,
      module_of(part.model, part.model.tensors[static_cast<size_t>(first)]));
}

}  // namespace canzona
