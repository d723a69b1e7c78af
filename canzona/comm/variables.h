// The environment of a process, or one that is given instead.
#pragma once

#include <cstdlib>
#include <functional>

namespace canzona {

// The value of a variable; null for what is not set.
using Variables = std::function<const char*(const char* name)>;

inline Variables process_variables() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

}  // namespace canzona
