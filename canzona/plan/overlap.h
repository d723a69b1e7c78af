// How far communication runs beside compute.
#pragma once

#include <string_view>

namespace canzona {

// What of the communication compute waits for at once.
enum class Overlap {
  kNone,        // everything
  kMain,        // all but the next module's gather and the last one's scatter
  kBackground,  // nothing that it does not need yet
};
std::string_view to_string(Overlap overlap);
Overlap parse_overlap(std::string_view text);

}  // namespace canzona
