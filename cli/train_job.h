// A TrainJob is what `canzona train` is about to do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "canzona/measure/machine_speed.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/measure/train_plan.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/sim/zero_search.h"
#include "canzona/train/config.h"
#include "canzona/train/trainer.h"
#include "cli/ranks.h"

namespace canzona::cli {

// Measures what ranks reach here while all of them compute. All processes call
// it.
MachineLimits measure_limits_on(Ranks& ranks);
// The first of them alone: flops in a second of one rank while all multiply.
double measure_product_rate_on(Ranks& ranks);

// A configuration turned into what is to be run: the model's shapes, the plan,
// the settings of the loop, and what they will take.
//
//   TrainJob job = make_job(config, mesh);
//   require_memory(job, ranks_here);
//   run_ranks(…, [&](…) { train(job.settings, job.plan, …); });

struct TrainJob {
  TrainSettings settings;
  Plan plan;
  int64_t context = 0;  // tokens of the longest text the model is made for
  std::vector<RankCost> ranks;                 // predicted, by rank
  Link link = {};                              // to be modelled
  std::optional<ZeroComparison> ranking = {};  // of `--zero auto`
  bool chose_collectives = false;              // by `--collectives auto`
  // Bytes that each rank reserves beside its plan; stages of a pipeline differ.
  std::vector<int64_t> activations_of = {};
  int64_t activations = 0;  // of the fullest rank
  // Bytes that each rank reserves to save in the background.
  std::vector<int64_t> staging_of = {};
  std::vector<std::string> notes = {};  // for the user
  // Predicted times rest on it; none: nothing was measured.
  std::optional<MachineSpeed> speed = {};

  int64_t num_parameters() const;
  int64_t bytes_of(int32_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return ranks[r].memory.total().value() + activations_of[r] + staging_of[r];
  }
  int32_t fullest_rank() const;  // the first of those that reserve most
  int64_t most_bytes() const { return bytes_of(fullest_rank()); }
  double step_seconds() const;       // of the optimizer, predicted; 0: unknown
  WireBytes bytes_per_step() const;  // the most of any rank, predicted
  // ZeRO-1, no slices, no replicas, and direct because nobody wished otherwise.
  bool is_plain() const;
};

// UsageError names what cannot be met. `--zero auto` needs the limits.
TrainJob make_job(const TrainConfig& config, const Mesh& mesh,
                  const std::optional<MachineLimits>& limits = {});

// Bytes of the checkpoints that the run has at a time, but for their headers; 0
// if it saves none.
int64_t checkpoint_bytes(const TrainJob& job);

// Sets what the MFU is measured by: products in fp32 of one rank while all
// compute.
void set_product_rate(double flops_per_second_of_a_rank, TrainJob& job);

// Predicts times of the same plan by what this machine was measured to do.
void predict_at(const MachineSpeed& speed, TrainJob& job);

// UsageError if the ranks of this machine would need more memory than it has
// free, before anything is allocated.
void require_memory(const TrainJob& job, int64_t ranks_here);

}  // namespace canzona::cli
