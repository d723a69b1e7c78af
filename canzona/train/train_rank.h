// One rank of a training run: its runtime with the initial parameters, its
// share of the data, and its pipeline stage.
//
//   TrainRank rank(settings, plan, batches, world, engine);
//   std::vector<double> losses = rank.learn(step);
//   StepOutcome outcome = rank.update(step);
//
// All ranks must call the same functions in the same order; after an error on
// one, the others get PeerLost. One thread at a time; all arguments must
// outlive it.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/train/stage.h"

namespace canzona {

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
  // reduced. Returns losses like Stage::learn.
  std::vector<double> learn(int64_t step);
  // Runs the optimizer's step; gradients are zero afterwards.
  StepOutcome update(int64_t step);

  // Seconds so far: that compute waited for other ranks, that links were busy,
  // and that compute waited while they were.
  struct Times {
    double waited = 0, busy = 0, exposed = 0;
    RuntimeTimes runtime = {};
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
  AbortOnError guard_;  // last, so that it is destroyed first
};

}  // namespace canzona
