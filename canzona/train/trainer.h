// Trains the decoder: one rank's part of it.
//
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     TrainResult result =
//         train(settings, plan, batches, world, *engine, observer);
//   });
//
// Step s (1, 2, …) learns from sequences (s − 1)·global_batch and following;
// the ranks share them by micro-batches, so that the run is the same on every
// mesh but for the order of sums in forward and backward. All ranks call it at
// once, with the same settings, and get the same result; the observer of rank
// 0 is told, others need none. After an error the other ranks get PeerLost.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/model/decoder_config.h"
#include "canzona/runtime/runtime.h"
#include "canzona/trace/step_metrics.h"

namespace canzona {

struct TrainSettings {
  DecoderConfig decoder = {};
  int64_t steps = 0;
  int64_t global_batch = 0;  // sequences of a step
  uint64_t seed = 0;
  // Of step 1, 2, …: of matrices, and of what AdamW updates.
  std::function<double(int64_t)> learning_rate;
  std::function<double(int64_t)> adamw_learning_rate;
  double clip_norm = 0;        // 0: no clipping
  int64_t eval_every = 0;      // steps; 0: only after the last one
  int64_t eval_sequences = 0;  // 0: all that are held out
  RuntimeOptions runtime = {};
  // Neighbouring micro-batches of a pipeline stage share gathers of parameters
  // and scatters of gradients (pair_neighbours). Changes no bit where gradients
  // do not leave with every micro-batch.
  bool reuse = false;
  // Set from outside: the run ends after the step it is in.
  const std::atomic<bool>* stop = nullptr;
};

// Where a rank's time went, in seconds of the whole run.
struct RankTimes {
  double forward_backward = 0;
  double optimizer = 0;
  double waited = 0;      // compute, for other ranks
  double links_busy = 0;  // beside the others, not part of the sum
  double other = 0;       // evaluation, records
};

struct TrainResult {
  int64_t steps = 0;
  int64_t tokens = 0;  // consumed by all ranks: the position in the data
  double seconds = 0;
  double final_loss = 0;  // of the last step
  double eval_loss = 0;
  std::string digest;  // of parameters
  std::string state_digest;
  int64_t skipped_steps = 0;
  bool stopped = false;
  std::vector<RankTimes> times;       // by rank
  std::vector<int64_t> memory_bytes;  // reserved, by rank
  // In all steps, by rank: what the runtime sent for them, not what a model
  // cut by tp, ep or pp sends inside forward and backward.
  std::vector<SentBytes> sent;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const StepMetrics& metrics) = 0;
  // At the end, every tensor of the model in order, whole.
  virtual void on_tensor(int32_t tensor, std::span<const float> whole) = 0;
};

// UsageError unless the mesh shares a step's sequences evenly, and for meshes
// that the decoder cannot use.
void check_training(const TrainSettings& settings, const Mesh& mesh);

// What a rank reserves beside its plan, in bytes; the largest of all ranks.
int64_t training_memory(const TrainSettings& settings, const Plan& plan);

TrainResult train(const TrainSettings& settings, const Plan& plan,
                  const Batches& batches, Communicator& world, Engine& engine,
                  TrainObserver* observer);

}  // namespace canzona
