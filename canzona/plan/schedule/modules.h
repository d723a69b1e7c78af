// A module is gathered and waited for as a unit. Number 0 is the embedding, 1 …
// layers are the layers, the last one is the head with everything else outside
// the layers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

inline int32_t num_modules(const Model& model) { return model.num_layers + 2; }

inline int32_t module_of(const Model& model, const Tensor& tensor) {
  if (tensor.layer >= 0) return 1 + tensor.layer;
  return tensor.role == Role::kEmbedding ? 0 : 1 + model.num_layers;
}

// True if the head shares the embedding's weights.
inline bool is_tied(const Model& model) {
  const auto has = [&](Role role) {
    return std::ranges::any_of(model.tensors,
                               [&](const Tensor& t) { return t.role == role; });
  };
  return has(Role::kEmbedding) && !has(Role::kHead);
}

// The names of modules and buckets in errors and traces: "embedding", "layer
// 3", "head"; "bucket 7" if tensors are not cut into slices.
inline std::string module_name(const Model& model, int32_t module) {
  if (module == 0) return "embedding";
  if (module == num_modules(model) - 1) return "head";
  return cat("layer ", module - 1);
}

// If tensors are cut into slices, a bucket is a module or a part of one.
inline std::string bucket_name(const PlanPart& part, int32_t bucket) {
  if (part.grid.places == 1) return cat("bucket ", bucket);
  const int32_t first =
      part.buckets[static_cast<size_t>(bucket)].tensors.front();
  return module_name(
      part.model,
      module_of(part.model, part.model.tensors[static_cast<size_t>(first)]));
}

// Counts what one rank sends and receives for each module in an iteration, by
// purpose.
//
//   const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
//   of(modules[3], Purpose::kGatherModule).sent_inter   // of one gather
//
// Gathers happen at every use of a module, scatters in every micro-batch, and
// the rest in the step. Pure.

using PurposeBytes = std::array<WireBytes, kNumPurposes>;
inline WireBytes& of(PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}
inline const WireBytes& of(const PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}

// Indexed by module. A bucket of several modules is counted with the first;
// modules of other stages are empty. `rank` is a rank of the part, or of the
// whole plan.
std::vector<PurposeBytes> module_bytes(const PlanPart& part, int32_t rank);
std::vector<PurposeBytes> module_bytes(const Plan& plan, int32_t rank);

}  // namespace canzona
