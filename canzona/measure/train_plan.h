// Makes the plan of a training run: as configured or, with `--zero auto`, the
// fastest one that fits.
//
//   TrainPlan made = plan_training(config, settings, mesh, limits);
//   if (made.ranking) … summary_of(*made.ranking) …
//
// Parameters are fp32, on a device bf16 with fp32 masters; a memory cap
// includes activations.
#pragma once

#include <cstdint>
#include <optional>

#include "canzona/measure/rank_runner.h"
#include "canzona/sim/zero_ranking.h"
#include "canzona/train/config.h"
#include "canzona/train/trainer.h"

namespace canzona::measure {

struct TrainPlan {
  Plan plan;
  // The ranking of `--zero auto`, without a description of its rates.
  std::optional<ZeroRanking> ranking = {};
};

// `limits` is required by `--zero auto` and must be the same on all ranks.
// UsageError names what cannot be met. The plan is not validated.
TrainPlan plan_training(const TrainConfig& config,
                        const TrainSettings& settings, const Mesh& mesh,
                        const std::optional<MachineLimits>& limits);

// Returns the links to model; none means as fast as memory.
Link link_of(const TrainConfig& config);
int32_t ranks_per_node_of(const TrainConfig& config);

}  // namespace canzona::measure
