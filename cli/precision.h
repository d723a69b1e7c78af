// In which precision Muon's products are computed on this machine, and why.
// `precision=auto` is settled here, before anything is planned: the planner
// gets the word and never asks the machine.
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

// Replaces `auto`, or no word, by what is best on the device: on a CPU bf16
// where it has fast products of bf16, fp32 elsewhere.
PrecisionChoice settle_precision(const std::string& rule,
                                 const std::string& device,
                                 RuleOptions& options);

// make_config() with `rule.option.precision` settled for this CPU; the key's
// origin is the reason.
TrainConfig make_settled_config(Settings given);
PrecisionChoice precision_of(const TrainConfig& settled);

// Compares what the ranks' processes have settled: UsageError on all of them
// names two that differ. All ranks call it.
void require_same_precision(Ranks& ranks, const PrecisionChoice& own);

}  // namespace canzona::cli
