// Decides in which precision Muon's products are computed on this machine, and
// why. `precision=auto` is resolved here, before planning: the planner gets the
// result and never queries the machine.
//
//   RuleOptions options = …;
//   PrecisionChoice choice = settle_precision("muon", "cpu", options);
//   choice.text();                       // "bf16 (auto: AMX)"
//   require_same_precision(*ranks, choice);
#pragma once

#include <string>

#include "canzona/report/bench/bench_text.h"
#include "canzona/rules/facts.h"
#include "canzona/train/config.h"
#include "cli/ranks.h"

namespace canzona::cli {

// Replaces `auto`, or no value, by what is best on the device: on a CPU bf16 if
// it has fast bf16 products, otherwise fp32.
PrecisionChoice settle_precision(const std::string& rule,
                                 const std::string& device,
                                 RuleOptions& options);

// make_config() with `rule.option.precision` resolved for this CPU, or for the
// device that the settings name; the key's origin is the reason.
TrainConfig make_settled_config(Settings given);
PrecisionChoice precision_of(const TrainConfig& settled);

// Compares what the ranks' processes have resolved: UsageError on all of them
// names two that differ. All ranks must call it.
void require_same_precision(Ranks& ranks, const PrecisionChoice& own);

}  // namespace canzona::cli
