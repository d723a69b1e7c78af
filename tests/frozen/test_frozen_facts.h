// Computes what the library makes of a request of the frozen set. Everything
// that touches types of the library is in the source of this header, so that
// they can be renamed and moved while the results stay.
//
// A request that is refused has one fact, the text of the error.
#pragma once

#include "test_frozen_cases.h"
#include "test_frozen_lines.h"

namespace canzona::tests {

// Digest of the plan; bytes, memory and loads of all ranks; bytes of modules
// and pools where slices are cut; predicted times.
FrozenFacts frozen_plan_facts(const FrozenCase& c);

// The simulated iteration.
FrozenFacts frozen_iteration_facts(const FrozenCase& c);

// Two steps on ranks that are threads: bytes, memory and pools of all ranks.
// Digests of parameters and states, where they are the same on every processor
// (adamw); elsewhere whether they are those of one rank alone.
FrozenFacts frozen_step_facts(const FrozenCase& c);

}  // namespace canzona::tests
