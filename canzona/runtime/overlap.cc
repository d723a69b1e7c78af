#include <array>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

std::string_view to_string(Overlap overlap) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "main",
                                                      "background"};
  return kNames[static_cast<size_t>(overlap)];
}

Overlap parse_overlap(std::string_view text) {
  for (Overlap overlap : {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
    if (text == to_string(overlap)) return overlap;
  throw UsageError(cat("overlap ", quoted(text),
                       ": expected none, main or background",
                       did_you_mean(text, {"none", "main", "background"})));
}

}  // namespace canzona
