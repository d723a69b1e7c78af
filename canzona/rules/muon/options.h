// Muon's options and presets, and the checks between them.
#pragma once

#include <string_view>
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

// How often the Gram form must start anew in this precision.
int64_t muon_restarts_needed(const RuleOptions& in_force,
                             std::string_view precision);

// The steps that these options mean.
std::vector<Coefficients> muon_coefficients(const RuleOptions& in_force);

}  // namespace canzona
