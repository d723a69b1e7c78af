// The bounds of an Architecture.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/shapes/architecture.h"

namespace canzona {

// UsageError names the number that is out of bounds or does not divide.
// Afterwards every width that generate_model computes fits 64 bits.
void check_architecture(const Architecture& architecture,
                        const std::string& name);

// An upper limit, less than 20 per layer too high, of the tensors that
// generate_model will make; UsageError above kMaxTensors.
int64_t count_tensors(const Architecture& architecture, const std::string& name,
                      bool fused);

}  // namespace canzona
