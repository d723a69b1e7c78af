// Published times with what is predicted for them, for the terminal and as
// JSON.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/terminal.h"
#include "canzona/sim/published.h"

namespace canzona {

std::string published_text(const std::vector<PredictedPaper>& papers,
                           const Ink& ink);
std::string published_view_json(const std::vector<PredictedPaper>& papers);

}  // namespace canzona
