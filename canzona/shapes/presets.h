// Known models by name, as numbers.
#pragma once

#include <string_view>

#include "canzona/shapes/architecture.h"

namespace canzona {

// nullptr: no such preset. What it points to lives as long as the program.
const Architecture* find_preset(std::string_view name);

}  // namespace canzona
