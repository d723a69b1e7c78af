// Writes the JSON of canzona_step_layout(): docs/c_interface.md.
#pragma once

#include <string>

#include "canzona/plan/placed/placed_schedule.h"

namespace canzona {

std::string layout_json(const PlacedPlan& plan, const PlacedSchedule& schedule);

}  // namespace canzona
