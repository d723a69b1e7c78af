#include "canzona/plan/overlap.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::kNone:
      return "none";
    case Overlap::kMain:
      return "main";
    case Overlap::kBackground:
      break;
  }
  return "background";
}

Overlap parse_overlap(std::string_view text) {
  for (Overlap overlap : {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
    if (text == to_string(overlap)) return overlap;
  throw UsageError(cat("--overlap ", quoted(text),
                       ": expected none, main or background",
                       did_you_mean(text, {"none", "main", "background"})));
}

}  // namespace canzona
