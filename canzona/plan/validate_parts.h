// Pieces of validate(): what a plan in parts promises, and the memory cap.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/predict.h"

namespace canzona {

// Violations of a plan in parts (parts.h), each with the part it is in.
std::vector<std::string> validate_in_parts(const Plan& plan);

// One line for all ranks: with one cap (0: none), their violations are alike.
// Every rank needs `activations` bytes beside its plan.
void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations);

}  // namespace canzona
