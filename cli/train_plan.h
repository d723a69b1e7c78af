// The plan of a training run: as the configuration asks, or, with `--zero
// auto`, the fastest that fits.
//
//   TrainPlan made = plan_training(config, settings, mesh, limits);
//   if (made.ranking) out.note(made.ranking->search.summary());
//
// Parameters are fp32; a cap on memory counts activations, too. UsageError
// names what cannot be met.
#pragma once

#include <optional>

#include "canzona/measure/rank_runner.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/sim/zero_search.h"
#include "canzona/train/config.h"
#include "canzona/train/trainer.h"
#include "cli/ranks.h"

namespace canzona::cli {

struct TrainPlan {
  Plan plan;
  std::optional<ZeroComparison> ranking = {};  // of `--zero auto`
};

// `limits`: needed by `--zero auto`, the same on all ranks.
TrainPlan plan_training(const TrainConfig& config,
                        const TrainSettings& settings, const Mesh& mesh,
                        const std::optional<MachineLimits>& limits);

// What ranks reach here while all of them compute. All processes call it.
MachineLimits measure_limits_on(Ranks& ranks);
// The first of them alone: flops in a second of one rank while all multiply.
double measure_product_rate_on(Ranks& ranks);

// The links to be modelled; none: as fast as memory.
Link link_of(const TrainConfig& config);
int32_t ranks_per_node_of(const TrainConfig& config);

}  // namespace canzona::cli
