// One rank of a training run: its runtime with the initial parameters, its
// share of the data, and its pipeline stage.
//
//   TrainRank rank(settings, plan, batches, world, engine);
//   rank.learn(step);
//   StepOutcome outcome = rank.update(step, metrics);
//   std::span<const double> losses = rank.stage().losses();
//
// All ranks must call the same functions in the same order; after an error on
// one, the others get PeerLost. One thread at a time; all arguments must
// outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/data/token_source.h"
#include "canzona/runtime/runtime.h"
#include "canzona/shapes/tensor.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/config.h"
#include "canzona/train/qk_clip.h"
#include "canzona/train/stage.h"

namespace canzona::train {

// The initial parameters of a run. They depend only on the seed, the tensor's
// name and the logical position, so every mesh begins with the same model.
//
//   make_initial(model, tensor, seed, mesh.tp, place.t, shard);
//
// Norms are ones. Everything else is normally distributed: embedding and head
// with deviation 0.02, a matrix with 1/√columns, and matrices that write to the
// residual stream (o and down) with 1/√(2·layers) of that, so that depth does
// not blow it up.
//
// make_initial() is pure, and may use several threads. Whole tensors, at the
// end of a run, are assembled by all ranks.

double initial_deviation(const Model& model, const Tensor& tensor);

// `shard` is that of tp rank `t`.
void make_initial(const Model& model, const Tensor& tensor, uint64_t seed,
                  int32_t tp, int32_t t, std::span<float> shard,
                  int64_t threads = 1);

// Assembles tensors on rank 0 from the shards of all ranks.
//
//   gather_whole(world, runtime, tensor,
//                [&](std::span<const float> whole) { … });
//
// All ranks must call it for the same tensor; `use` is called on rank 0 only.
void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use);

// Opens the tokens that a configuration names.

// UsageError names the key if the tokenizer cannot be read or has more tokens
// than the model.
TokenOptions token_options_of(const TrainConfig& config);

// Returns 1 - waited / busy, at least 0; 1 if nothing was busy.
inline double share_hidden(double waited, double busy) {
  return busy > 0 ? std::clamp(1 - waited / busy, 0.0, 1.0) : 1;
}

// On an error, wakes ranks that wait for this one before anything here waits
// for them.
class AbortOnError {
 public:
  explicit AbortOnError(Communicator& world) : world_(world) {}
  ~AbortOnError() {
    if (std::uncaught_exceptions() > exceptions_)
      world_.abort(cat("rank ", world_.rank(), " failed in training"));
  }
  AbortOnError(const AbortOnError&) = delete;
  AbortOnError& operator=(const AbortOnError&) = delete;

 private:
  Communicator& world_;
  int exceptions_ = std::uncaught_exceptions();
};

class TrainRank {
 public:
  TrainRank(const TrainSettings& settings, const Plan& plan,
            const Batches& batches, Communicator& world, Engine& engine);

  // Continues after `step` steps, which consumed `sequences` of the data.
  void go_on_after(int64_t step, int64_t sequences) {
    micro_batches_.go_on_after(step, sequences);
  }
  // Runs forward and backward over all micro-batches until gradients are
  // reduced, or issues that (Stage::learn).
  void learn(int64_t step);
  // Runs the optimizer's step; gradients are zero afterwards. `metrics` gets
  // what QK-clip has done, if it is on; throws NumericalError for a logit that
  // is not finite, unless the step was skipped.
  StepOutcome update(int64_t step, StepMetrics& metrics);

  // Seconds so far: that compute waited for other ranks, and that links were
  // busy.
  struct Times {
    double waited = 0, busy = 0;
  };
  Times times() const;
  SentBytes sent();

  Runtime& runtime() { return runtime_; }
  Stage& stage() { return stage_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }

 private:
  void set_parameters(const Plan& plan);

  const TrainSettings& settings_;
  Runtime runtime_;
  MicroBatches micro_batches_;
  Stage stage_;
  std::optional<RunQkClip> qk_clip_;
  AbortOnError guard_;  // last, so that it is destroyed first
};

}  // namespace canzona::train
