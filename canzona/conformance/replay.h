// Replays a fixture of a rule: all its steps, through the rule's stages and,
// beside them, through the fused step; every tensor of the fixture is compared
// after every step, and stages and fused step with each other, bit for bit.
#pragma once

#include "canzona/conformance/check_options.h"
#include "canzona/conformance/compare.h"
#include "canzona/conformance/fixture.h"
#include "canzona/linalg/engine.h"

namespace canzona {

// Throws Unsupported, UsageError if the file is wrong, NumericalError if the
// arithmetic fails.
Findings replay(Engine& engine, const Fixture& fixture,
                const CheckOptions& options);

}  // namespace canzona
