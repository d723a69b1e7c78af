// The JSON of storage that is given: docs/plan.md.
#pragma once

#include <string>
#include <string_view>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

// Reads a request. A file is untrusted: bytes, values, ranks, tensors and boxes
// are bounded. UsageError names `where`, the tensor and what was expected.
// Whether the boxes of a tensor fit together is make_placed_plan()'s to check.
PlacedRequest read_placed(std::string_view text,
                          const std::string& where = "request");

}  // namespace canzona
