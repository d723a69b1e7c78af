// Muon's options and presets, and the checks between them.
#pragma once

#include <vector>

#include "canzona/rules/facts.h"
#include "canzona/rules/muon/coefficients.h"

namespace canzona {

const std::vector<OptionFact>& muon_options();
const std::vector<Preset>& muon_presets();

// All options in force, with every "auto" but that of newton_schulz resolved.
// UsageError if they contradict each other or are known to do harm; the latter
// may be had with unsafe=on.
RuleOptions muon_options_in_force(const RuleOptions& given);

// The steps that these options mean.
std::vector<Coefficients> muon_coefficients(const RuleOptions& in_force);

}  // namespace canzona
