// Replays a fixture and compares the results.
#pragma once

#include <string>

#include "canzona/conformance/compare.h"
#include "canzona/conformance/fixture.h"
#include "canzona/linalg/engine.h"

namespace canzona {

struct CheckOptions {
  // Muon's form: auto, standard, symmetric, gram.
  std::string newton_schulz = "auto";
  // The device of the engine: cpu or cuda.
  std::string device = "cpu";
  // Tolerances hold for the reference's machine, library and rounding points.
  // These factors widen those of fp32 results and those of others; on a GPU
  // only the formulas are the same.
  double slack = 4;
  double other_slack = 1;

  // The slack of results in "f64", "f32" or "bf16".
  double slack_of(const std::string& dtype) const {
    return dtype == "f32" ? slack : other_slack;
  }
};

// Replays a fixture of a rule: all its steps, through the rule's stages and,
// separately, through the fused step. Every tensor of the fixture is compared
// after every step, and stages and fused step must agree bit for bit.

// Throws Unsupported; UsageError if the file is invalid; NumericalError if the
// arithmetic fails.
Findings replay(Engine& engine, const Fixture& fixture,
                const CheckOptions& options);

// Checks fixtures of pure functions: Newton–Schulz and inverse roots, each
// input in every number format for which the fixture has a result.

// Throws Unsupported; UsageError if the file is invalid.
Findings check_pure(Engine& engine, const Fixture& fixture,
                    const CheckOptions& options);

}  // namespace canzona
