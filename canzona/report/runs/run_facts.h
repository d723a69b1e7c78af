// What was asked of runs and where they ran, as lists of names and values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona {

using Facts = std::vector<std::pair<std::string, std::string>>;

// The configuration with nested names joined: {"rule.name", "muon"}. At most
// 2000 of them.
Facts configuration_of(const TrainingRun& run);
Facts environment_of(const TrainingRun& run);

// One row per name, one value per run ("" where a run has none).
struct FactRow {
  std::string name;
  std::vector<std::string> values;
  bool differs = false;
};
std::vector<FactRow> side_by_side(const std::vector<Facts>& facts);

}  // namespace canzona
