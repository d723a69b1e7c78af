// Checks fixtures of pure functions: Newton–Schulz and inverse roots, each
// input in every number format that the fixture has a result for.
#pragma once

#include "canzona/conformance/check_options.h"
#include "canzona/conformance/compare.h"
#include "canzona/conformance/fixture.h"
#include "canzona/linalg/engine.h"

namespace canzona {

// Throws Unsupported, and UsageError if the file is wrong.
Findings check_pure(Engine& engine, const Fixture& fixture,
                    const CheckOptions& options);

}  // namespace canzona
