// A TrainJob is what `canzona train` is about to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/measure/machine.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/train_plan.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/saving/load_state.h"
#include "canzona/sim/zero_ranking.h"
#include "canzona/train/config.h"
#include "canzona/train/trainer.h"
#include "cli/config.h"
#include "cli/ranks.h"

namespace canzona::cli {

// Finds what `canzona train --resume` resumes from.

// A checkpoint that was found, and the settings it was saved with. Every
// process of a run finds the same one; only its small files have been read.
struct ResumePoint {
  LoadRequest request;
  std::string name;    // "checkpoint of step 100"
  std::string hash;    // of its manifest
  Settings saved;      // its configuration
  bool has_run_state;  // false: weights only
  bool is_of_run;      // it is in the folder of this run
};

// `wish` is "auto", a step, or the path of a checkpoint, of a folder of
// checkpoints or of another run. Returns nothing if `auto` finds nothing to
// resume from. Throws UsageError for a path that is none of these, without
// --run, and for weights only, from which a run cannot resume; throws DataLost
// for a step that does not exist, or if nothing there can be read. States that
// are not there are an error, or begin anew.
std::optional<ResumePoint> find_resume_point(const std::string& wish,
                                             const std::string& run,
                                             bool begins_missing);

// Returns the settings of a run that was killed before its first checkpoint,
// from its summary; nothing if the folder has no summary, or that of a finished
// run. Throws UsageError if it cannot be read.
std::optional<Settings> unfinished_settings(const std::string& run);

// For `--resume auto` that has found no settings: throws UsageError if the
// folder holds no run and nothing says what to train on, since the folder's
// name may be mistyped.
void require_run_or_data(const TrainConfig& config);

// "the newest checkpoint is of step 100; canzona train --run … goes on from
// it";
// "" if there is none.
std::string resume_hint(const std::string& run);

// Returns the configuration of a resumed run: what was saved, overridden by
// what is given. `launched` is the number of ranks started by a launcher; 0:
// none. Throws UsageError for a key that must stay.
TrainConfig resumed_config(const ConfigArguments& arguments,
                           const ResumePoint& point, int64_t launched);

// Measures the machine's limits while all ranks compute. All processes must
// call it.
MachineLimits measure_limits_on(Ranks& ranks);
// Measures only the first of them: flop/s of one rank while all multiply.
double measure_product_rate_on(Ranks& ranks);

// A configuration turned into a job: the model's shapes, the plan, the settings
// of the loop, and what they need.
//
//   TrainJob job = make_job(config, mesh);
//   require_memory(job, ranks_here);
//   run_ranks(…, [&](…) { train(job.settings, job.plan, …); });

struct TrainJob {
  TrainSettings settings;
  Plan plan;
  int64_t context = 0;          // longest context of the model, in tokens
  std::vector<RankCost> ranks;  // predicted, by rank
  std::string device = "cpu";
  Link link = {};                           // modelled
  std::optional<ZeroRanking> ranking = {};  // of `--zero auto`
  bool chose_collectives = false;           // by `--collectives auto`
  // Bytes that each rank reserves beside its plan; pipeline stages differ.
  std::vector<int64_t> activations_of = {};
  int64_t activations = 0;  // on the fullest rank
  // Bytes that each rank reserves for background saves.
  std::vector<int64_t> staging_of = {};
  std::vector<std::string> notes = {};  // for the user
  // The basis of predicted times; none: not measured.
  std::optional<MachineSpeed> speed = {};

  int64_t num_parameters() const;
  int64_t bytes_of(int32_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return ranks[r].memory.total().value() + activations_of[r] + staging_of[r];
  }
  int32_t fullest_rank() const;  // the first of those that reserve most
  int64_t most_bytes() const { return bytes_of(fullest_rank()); }
  double step_seconds() const;       // of the optimizer, predicted; 0: unknown
  WireBytes bytes_per_step() const;  // largest of any rank, predicted
  // True for ZeRO-1 without slices and replicas, and with direct collectives by
  // default.
  bool is_plain() const;
};

// UsageError names what cannot be met. `--zero auto` requires the limits.
TrainJob make_job(const TrainConfig& config, const Mesh& mesh,
                  const std::optional<MachineLimits>& limits = {});

// Returns the bytes of the checkpoints that exist at a time, without headers; 0
// if the run saves none.
int64_t checkpoint_bytes(const TrainJob& job);

// Sets the basis of the MFU: the rate of fp32 products of one rank while all
// compute.
void set_product_rate(double flops_per_second_of_a_rank, TrainJob& job);

// Predicts times of the same plan from this machine's measured speed.
void predict_at(const MachineSpeed& speed, TrainJob& job);

// Decisions by measurement become part of the configuration, so that the run
// can be repeated.
void settle_zero(const TrainJob& job, TrainConfig& config);

// Throws UsageError, before anything is allocated, if the ranks of this machine
// need more memory than it has free; on a GPU, for background saves alone.
void require_memory(const TrainJob& job, int64_t ranks_here);

}  // namespace canzona::cli
