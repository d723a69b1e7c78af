// From the options of a fixture to those of our rules.
//
//   Translation ours = translate(fixture, "gram");
//   auto rule = make_rule(fixture.rule, ours.options, DType::kFp64);
//
// Every option of the fixture is translated, known to move nothing but
// rounding, or refused: Unsupported names it. UsageError if the file is wrong.
#pragma once

#include <string>
#include <vector>

#include "canzona/conformance/fixture.h"
#include "canzona/rules/facts.h"

namespace canzona {

struct Translation {
  RuleOptions options;
  std::vector<double> learning_rates;  // of each step
};
// `form` is Muon's newton_schulz, `device` that of rules that ask for one.
Translation translate(const Fixture& fixture, const std::string& form,
                      const std::string& device = "cpu");

// Muon's options for a fixture of Newton–Schulz as a function; precision is
// fp64, fp32 or bf16.
RuleOptions translate_newton_schulz(const Fixture& fixture,
                                    const std::string& precision,
                                    const std::string& form,
                                    const std::string& device = "cpu");

}  // namespace canzona
