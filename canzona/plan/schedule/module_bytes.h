// Counts what one rank sends and receives for each module in an iteration, by
// purpose.
//
//   const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
//   of(modules[3], Purpose::kGatherModule).sent_inter   // of one gather
//
// Gathers come with every use of a module, scatters with every micro-batch, the
// rest with the step. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/wire_bytes.h"

namespace canzona {

using PurposeBytes = std::array<WireBytes, kNumPurposes>;
inline WireBytes& of(PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}
inline const WireBytes& of(const PurposeBytes& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}

// By module, buckets of several with the first of them; those of other stages
// are empty. `rank`: of the part, or of the whole plan.
std::vector<PurposeBytes> module_bytes(const PlanPart& part, int32_t rank);
std::vector<PurposeBytes> module_bytes(const Plan& plan, int32_t rank);

}  // namespace canzona
