// Plans from files, for the verbs that look at them.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona::cli {

struct PlanFile {
  Plan plan;
  std::vector<std::string> violations;  // empty: sound
};

// UsageError for a file that is no plan. Violations are also a digest that does
// not fit the contents, and a plan so broken that it cannot be read to its end
// (then `plan` is empty).
PlanFile read_plan(const std::string& path);

}  // namespace canzona::cli
