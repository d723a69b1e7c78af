// Members of a team compute parts of one matrix, whose bits depend on what
// computes them: their devices and kernels must be the same.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

class Communicator;
class Engine;

// What is wrong if ranks compute as `engines` says, by rank of the world;
// empty: the members of every team compute alike.
std::string find_unlike_members(const Plan& plan,
                                const std::vector<std::string>& engines);

// UsageError on every rank if members of a team compute differently. Of a plan
// with teams all ranks call it; of others it does nothing.
void require_alike_members(const Plan& plan, Communicator& world,
                           const Engine& engine);

}  // namespace canzona
