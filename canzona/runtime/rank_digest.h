// Digests of what all ranks hold together; see Runtime.
#pragma once

#include <string>

#include "canzona/runtime/rank.h"

namespace canzona {

std::string digest_parameters(Rank& rank);
std::string digest_states(Rank& rank);

}  // namespace canzona
