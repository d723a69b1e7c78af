// What states hold before the first step.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/facts.h"

namespace canzona {

// Zeros, or identities where the fact says so: the states of one kind of
// `tensors` tensors, one after another in the engine's memory.
void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors);

}  // namespace canzona
