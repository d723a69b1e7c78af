// Costs of a plan in parts (parts.h): every rank's share of each, added up.
#pragma once

#include <functional>
#include <vector>

#include "canzona/plan/predict.h"

namespace canzona {

// `costs` gives those of a part, by its ranks.
std::vector<RankCost> sum_of_parts(
    const Plan& plan,
    const std::function<std::vector<RankCost>(const Plan&)>& costs);

}  // namespace canzona
