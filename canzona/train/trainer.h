// Trains the decoder: one rank's part of it.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     TrainResult result =
//         train(settings, plan, batches, world, *engine, observer);
//   });
//
// A step learns from the global_batch sequences that follow those of the steps
// before it; the ranks share them by micro-batches, so that the run is the same
// on every mesh but for the order of sums in forward and backward. A run may go
// on after some steps of an earlier one. All ranks call it at once, with the
// same settings, and get the same result; the observer of rank 0 is told,
// others need none. After an error the other ranks get PeerLost.
//
// At the end a last save is waited for, then the weights come, then the result
// as it is, then the last evaluation: whoever ends the process during that one
// loses nothing else.
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
#include "canzona/model/decoder_config.h"
#include "canzona/runtime/runtime.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"
#include "canzona/trace/step_metrics.h"
#include "canzona/train/run_state.h"

namespace canzona {

class WeightSource;

// The point of a step at which a rank is. kSave: a save of it has begun, and
// may go on in the background.
enum class TrainPoint { kForward, kBackward, kOptimizer, kSave };
struct TrainMoment {
  TrainPoint point;
  int64_t step;
  int rank;
  Runtime& runtime;
};

// Says what of a run is saved, and when. A save that is due after a step that
// was skipped waits for one that was not: where numbers ceased to be finite,
// the last good checkpoint is what matters.
struct TrainSaving {
  int64_t every = 0;  // steps; 0: nothing is saved
  SaveSettings store = {};
  // Those that stay the same; what the loop knows comes with them.
  std::vector<SideFile> side_files = {};
  // Counted up from outside: the run is saved after the step that it is in.
  const std::atomic<int>* now = nullptr;
};

struct TrainSettings {
  DecoderConfig decoder = {};
  int64_t steps = 0;  // of the whole run: the number of its last one
  RunState start = {};
  // The checkpoint that the run goes on from, in place of `start`.
  std::optional<LoadRequest> resume = {};
  // Starts that the records of such a run know of: more than the checkpoint
  // does, if it went back or was killed before it saved again.
  int64_t starts_before = 0;
  DataIdentity data = {};  // what `batches` read
  TrainSaving saving = {};
  int64_t global_batch = 0;  // sequences of a step
  uint64_t seed = 0;
  // The parameters that it begins with; null: by chance, from the seed.
  std::shared_ptr<const WeightSource> initial = {};
  // The rates of step 1, 2, …: of matrices, and of what AdamW updates.
  std::function<double(int64_t)> learning_rate;
  std::function<double(int64_t)> adamw_learning_rate;
  double clip_norm = 0;    // 0: no clipping
  int64_t eval_every = 0;  // steps; 0: only after the last one
  // This many of those held out, the first ones; 0: no evaluation.
  int64_t eval_sequences = std::numeric_limits<int64_t>::max();
  // So many steps in a row whose gradient is not finite end the run; 0: none.
  int64_t max_skipped = 0;
  // A step whose loss is more than so many times the median of those before it
  // is told as a spike, and ends the run with spike_stop; 0: none is.
  double spike_factor = 0;
  bool spike_stop = false;
  int64_t check_replicas = 0;           // steps between checks; 0: none
  double flops_per_token = 0;           // for the MFU
  double product_flops_per_second = 0;  // of all ranks; 0: no MFU
  RuntimeOptions runtime = {};
  // Neighbouring micro-batches of a pipeline stage share gathers of parameters
  // and scatters of gradients (pair_neighbours). Changes no bit where gradients
  // do not leave with every micro-batch.
  bool reuse = false;
  // Set from outside to anything but 0: the run ends after the step, or the
  // part of an evaluation, that it is in.
  const std::atomic<int>* stop = nullptr;
  // For tests of faults: called by every rank as it comes to a point of a step.
  std::function<void(const TrainMoment& moment)> at_point = {};

  void come_to(const TrainMoment& moment) const {
    if (at_point) at_point(moment);
  }
  // The micro-batches of a step, on every data-parallel rank.
  int64_t micro_batches(const Mesh& mesh) const {
    return global_batch / (decoder.micro_batch * mesh.homes());
  }
};

// A rank's time, in seconds since the start, by what it went to.
struct RankTimes {
  double forward_backward = 0;
  double optimizer = 0;
  double waited = 0;      // compute, for other ranks
  double links_busy = 0;  // beside the others, not part of the sum
  double other = 0;       // evaluation, records
};

struct TrainResult {
  int64_t steps = 0;       // of the whole run, with those before its start
  int64_t steps_here = 0;  // of these, since its start
  int64_t tokens = 0;      // consumed by all ranks: the position in the data
  double seconds = 0;      // of the whole run
  // The losses of the last step, and after it; NaN: not measured.
  double final_loss = std::numeric_limits<double>::quiet_NaN();
  double eval_loss = std::numeric_limits<double>::quiet_NaN();
  int64_t eval_sequences = 0;
  std::string digest;  // of parameters
  std::string state_digest;
  int64_t skipped_steps = 0;
  // The tensor of the last of them, as StepOutcome has it.
  std::string nonfinite_tensor;
  int64_t nonfinite_rank = -1;
  int stop = 0;          // what settings.stop was set to, if that ended the run
  bool stopped = false;  // by it, before the last step
  LossSpikes spikes = {};
  // max_skipped were reached, or the last step was a spike and spike_stop.
  bool diverged = false;
  int64_t starts = 1;                 // of the run, resumed ones among them
  int64_t start_step = 0;             // steps done before the last one
  int64_t saves = 0;                  // committed since
  int64_t saved_step = -1;            // the last of them
  double save_pause_seconds = 0;      // of all of them
  std::string save_failure;           // of the last save; "": none
  bool save_not_finite = false;       // that failed because of the weights
  int64_t failed_step = -1;           // that it was of
  std::vector<RankTimes> times;       // by rank
  std::vector<int64_t> memory_bytes;  // reserved, by rank
  // In all steps since the start, by rank: what the runtime sent for them, not
  // what a model cut by tp, ep or pp sends inside forward and backward.
  std::vector<SentBytes> sent;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // Before the first step of a run that begins anew: all ranks have what it
  // begins with.
  virtual void on_begin() {}
  // Before the first step of a run that goes on.
  virtual void on_resumed(const LoadedState&, const RunState&) {}
  // After on_resumed(): true if the records lack the evaluation of the step
  // that the run goes on from, because it was ended before that was done.
  virtual bool lacks_evaluation() const { return false; }
  // A save has ended, well or not.
  virtual void on_saved(const SavedStep&) {}
  // As soon as it is done; what it is evaluated to follows.
  virtual void on_step(const StepMetrics& metrics) = 0;
  // Some sequences of an evaluation are done.
  virtual void on_evaluating(int64_t done, int64_t all) = 0;
  // After the step of this number, which was told before.
  virtual void on_evaluation(int64_t step, double loss) = 0;
  // At the end, every tensor of the model in order, whole.
  virtual void on_tensor(int32_t tensor, std::span<const float> whole) = 0;
  // The last of them was told. Other ranks may be gone by now.
  virtual void on_weights() = 0;
  // The result but for the last evaluation, which comes after it.
  virtual void on_result(const TrainResult& so_far) = 0;
};

// UsageError unless the mesh shares a step's sequences evenly, and for meshes
// that the decoder cannot use.
void check_training(const TrainSettings& settings, const Mesh& mesh);

// The bytes that a rank reserves beside its plan: those of `rank`, and the most
// of any rank.
int64_t training_memory(const TrainSettings& settings, const Plan& plan,
                        int32_t rank);
int64_t training_memory(const TrainSettings& settings, const Plan& plan);

TrainResult train(const TrainSettings& settings, const Plan& plan,
                  const Batches& batches, Communicator& world, Engine& engine,
                  TrainObserver* observer);

}  // namespace canzona
