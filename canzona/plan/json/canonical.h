// A digest names a plan's values; it does not name what a file says beside
// them.
#pragma once

#include <string>
#include <string_view>

#include "canzona/base/json_reader.h"

namespace canzona {

// UsageError names the place where the values of a file, `text` and `root` that
// was read from it, are others than in `canonical`, what the plan is written
// as. White space, the order of members and how a number is spelled are free.
void require_canonical(const Json& root, std::string_view text,
                       std::string canonical, const JsonLimits& limits);

}  // namespace canzona
