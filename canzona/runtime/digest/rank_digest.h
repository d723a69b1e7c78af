// This rank's share of the digests of what all ranks hold together; see
// Runtime.
#pragma once

#include "canzona/runtime/digest/logical_digest.h"
#include "canzona/runtime/rank.h"

namespace canzona {

// All ranks of the plan call it: InternalError if some of them should hold the
// same parameters, and do not.
LogicalDigest digest_parameters(Rank& rank);
LogicalDigest digest_states(Rank& rank);

}  // namespace canzona
