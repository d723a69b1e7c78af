// Trains the decoder, on one rank.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     TrainResult result =
//         train(settings, plan, batches, world, *engine, observer);
//   });
//
// A step trains on the global_batch sequences after those of the previous
// steps; the ranks share them by micro-batches, so that the run is the same on
// every mesh except for the order of sums in forward and backward. A run may
// continue an earlier one. All ranks must call it at the same time, with the
// same settings, and get the same result; only rank 0 needs an observer. After
// an error the other ranks get PeerLost.
//
// At the end come the last save, then the weights, then the result so far, then
// the last evaluation: ending the process during that one loses nothing else.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/model/trained_decoder.h"
#include "canzona/rules/qk_clip.h"
#include "canzona/runtime/runtime.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/resume.h"

namespace canzona::checkpoint {
class WeightSource;
}

namespace canzona::train {

// The point of a step that a rank has reached. kSave: a save has begun and may
// continue in the background.
enum class TrainPoint { kForward, kBackward, kOptimizer, kSave };
struct TrainMoment {
  TrainPoint point;
  int64_t step;
  int rank;
  Runtime& runtime;
};

// Says what of a run is saved, and when. A save that is due after a skipped
// step waits for one that was not skipped: when numbers cease to be finite, the
// last good checkpoint is what matters.
struct TrainSaving {
  int64_t every = 0;  // steps; 0: nothing is saved
  SaveSettings store = {};
  // Side files that stay the same; the loop adds its own.
  std::vector<SideFile> side_files = {};
  // Incremented from outside to have the run saved after the current step.
  const std::atomic<int>* now = nullptr;
};

struct TrainSettings {
  DecoderConfig decoder = {};
  int64_t steps = 0;  // the run's total, with those before a resume
  RunState start = {};
  // The checkpoint from which the run resumes, instead of `start`.
  std::optional<LoadRequest> resume = {};
  // The number of starts in the records of such a run: more than in the
  // checkpoint if it went back or was killed before it saved again.
  int64_t starts_before = 0;
  DataIdentity data = {};  // the identity of `batches`
  TrainSaving saving = {};
  int64_t global_batch = 0;  // sequences per step
  uint64_t seed = 0;
  // The initial parameters; null: random, from the seed.
  std::shared_ptr<const WeightSource> initial = {};
  // The learning rates of step 1, 2, …: for matrices, and for what AdamW
  // updates.
  std::function<double(int64_t)> learning_rate;
  std::function<double(int64_t)> adamw_learning_rate;
  double clip_norm = 0;  // 0: no clipping
  // Requires DecoderConfig::notes_logits.
  std::optional<QkClip> qk_clip = {};
  int64_t eval_every = 0;  // steps; 0: only after the last one
  // The number of held-out sequences to evaluate, from the first on; 0: no
  // evaluation.
  int64_t eval_sequences = std::numeric_limits<int64_t>::max();
  // The run ends after this many consecutive steps with a gradient that is not
  // finite; 0: never.
  int64_t max_skipped = 0;
  // A step whose loss is more than this many times the median of those before
  // it is reported as a spike, and ends the run if spike_stop; 0: never.
  double spike_factor = 0;
  bool spike_stop = false;
  int64_t check_replicas = 0;           // steps between checks; 0: none
  double flops_per_token = 0;           // for the MFU
  double product_flops_per_second = 0;  // of all ranks; 0: no MFU
  RuntimeOptions runtime = {};
  // Lets neighbouring micro-batches of a pipeline stage share gathers of
  // parameters and scatters of gradients (pair_neighbours). Changes no bits
  // unless gradients leave with every micro-batch.
  bool reuse = false;
  // Set from outside to nonzero to end the run after the current step, or the
  // current part of an evaluation.
  const std::atomic<int>* stop = nullptr;
  // For tests: in the place of the device's own decoder.
  std::function<std::unique_ptr<TrainedDecoder<float>>(
      const DecoderConfig&, const Model&, Engine&, DeviceWeights&)>
      make_device_decoder = {};
  // For fault tests: called by every rank when it reaches a point of a step.
  std::function<void(const TrainMoment& moment)> at_point = {};

  void come_to(const TrainMoment& moment) const {
    if (at_point) at_point(moment);
  }
  // The number of micro-batches per step on every data-parallel rank.
  int64_t micro_batches(const Mesh& mesh) const {
    return global_batch / (decoder.micro_batch * mesh.homes());
  }
};

// A rank's time since the start, in seconds, by use.
struct RankTimes {
  double forward_backward = 0;
  double optimizer = 0;
  double waited = 0;      // compute waiting for other ranks
  double links_busy = 0;  // overlaps the others; not part of the sum
  double other = 0;       // evaluation, records
};

struct TrainResult {
  int64_t steps = 0;       // of the whole run, with those before a resume
  int64_t steps_here = 0;  // of these, since the last start
  int64_t tokens = 0;      // consumed by all ranks: the position in the data
  double seconds = 0;      // of the whole run
  // The loss of the last step, and the evaluation loss after it; NaN: not
  // measured.
  double final_loss = std::numeric_limits<double>::quiet_NaN();
  double eval_loss = std::numeric_limits<double>::quiet_NaN();
  int64_t eval_sequences = 0;
  std::string digest;  // of parameters
  std::string state_digest;
  std::string device;  // RunState::device
  int64_t skipped_steps = 0;
  // The tensor of the last skipped step, as in StepOutcome.
  std::string nonfinite_tensor;
  int64_t nonfinite_rank = -1;
  int stop = 0;          // the value of settings.stop, if that ended the run
  bool stopped = false;  // by settings.stop, before the last step
  LossSpikes spikes = {};
  // True if max_skipped was reached, or the last step was a spike and
  // spike_stop is set.
  bool diverged = false;
  int64_t starts = 1;                 // of the run, including resumes
  int64_t start_step = 0;             // steps done before the last start
  int64_t saves = 0;                  // committed since then
  int64_t saved_step = -1;            // the last one
  double save_pause_seconds = 0;      // over all of them
  std::string save_failure;           // of the last save; "": none
  bool save_not_finite = false;       // the save failed because of the weights
  int64_t failed_step = -1;           // the step of that save
  std::vector<RankTimes> times;       // by rank
  std::vector<int64_t> memory_bytes;  // reserved, by rank
  // Bytes that the runtime sent in all steps since the start, by rank, without
  // those that a model cut by tp, ep or pp sends inside forward and backward.
  std::vector<SentBytes> sent;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // Called before the first step of a new run, when all ranks have the initial
  // parameters.
  virtual void on_begin() {}
  // Called before the first step of a resumed run.
  virtual void on_resumed(const LoadedState&, const RunState&) {}
  // Called after on_resumed(): true if the records lack the evaluation of the
  // step from which the run resumes, because the run ended before it was done.
  virtual bool lacks_evaluation() const { return false; }
  // Called when a save has ended, successfully or not.
  virtual void on_saved(const SavedStep&) {}
  // Called as soon as a step is done; its evaluation follows.
  virtual void on_step(const StepMetrics& metrics) = 0;
  // Called when some sequences of an evaluation are done.
  virtual void on_evaluating(int64_t done, int64_t all) = 0;
  // Called after the evaluation of a step that was reported before.
  virtual void on_evaluation(int64_t step, double loss) = 0;
  // Called at the end with every tensor of the model, in order and whole.
  virtual void on_tensor(int32_t tensor, std::span<const float> whole) = 0;
  // Called after the last tensor. Other ranks may be gone by now.
  virtual void on_weights() = 0;
  // Called with the result, except for the last evaluation, which follows.
  virtual void on_result(const TrainResult& so_far) = 0;
};

// True if forward and backward are those of the engine's device: a CPU's
// decoder has fp32 parameters.
inline bool computes_on_device(const Plan& plan) {
  return plan.options.parameters == DType::kBf16;
}

// Throws UsageError that names what training on a device does not have.
void check_device_training(const TrainSettings& settings, const Mesh& mesh);

// Throws UsageError unless the mesh divides a step's sequences evenly, and for
// meshes that the decoder does not support.
void check_training(const TrainSettings& settings, const Mesh& mesh);

// Return the bytes that a rank reserves beside its plan: those of `rank`, or
// the most of any rank.
int64_t training_memory(const TrainSettings& settings, const Plan& plan,
                        int32_t rank);
int64_t training_memory(const TrainSettings& settings, const Plan& plan);

TrainResult train(const TrainSettings& settings, const Plan& plan,
                  const Batches& batches, Communicator& world, Engine& engine,
                  TrainObserver* observer);

}  // namespace canzona::train
