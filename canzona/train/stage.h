// A rank's pipeline stage: its layers, run over the micro-batches of a step or
// of an evaluation.
//
//   Stage stage(settings, micro_batches, runtime, world, engine);
//   std::vector<double> losses = stage.learn(step);
//   std::vector<double> held_out = stage.evaluate({.sequences = 100,
//                                                  .first = 0, .count = 4});
//
// All ranks call the same things in the same order. One thread; everything
// given outlives it.
#pragma once

#include <span>
#include <vector>

#include "canzona/model/decoder.h"
#include "canzona/train/micro_batches.h"
#include "canzona/train/model_groups.h"
#include "canzona/train/module_uses.h"
#include "canzona/train/runtime_weights.h"
#include "canzona/train/schedule_1f1b.h"
#include "canzona/train/stage_links.h"
#include "canzona/train/trainer.h"

namespace canzona {

// What a stage does in a step, in order.
std::vector<StageTask> tasks_of(const TrainSettings& settings, const Mesh& mesh,
                                int32_t stage);

// Some of the rounds of an evaluation of the first `sequences` held out.
struct EvaluationRounds {
  int64_t sequences = 0;
  int64_t first = 0;
  int64_t count = 0;
};

class Stage {
 public:
  Stage(const TrainSettings& settings, const MicroBatches& micro_batches,
        Runtime& runtime, Communicator& world, Engine& engine);

  // Forward and backward of all micro-batches; gradients are announced. Mean
  // losses of this home's, 0 where the stage has no head.
  std::vector<double> learn(int64_t step);
  // The same over held-out sequences, forward alone: the mean of what counts in
  // each of the rounds.
  std::vector<double> evaluate(const EvaluationRounds& rounds);

  double waited() const;
  double busy() const;
  // How long its modules compute.
  ModuleClock& clock() { return weights_.clock(); }
  int64_t reserved() const;  // bytes

  // What a stage would reserve.
  static int64_t memory(const TrainSettings& settings, const Plan& plan,
                        const Coordinates& place);

 private:
  // What a micro-batch holds between forward and backward.
  struct Slot {
    std::vector<int32_t> sequences;
    std::vector<float> input, output;  // and, after forward, their gradients
    std::vector<float> input_gradient, output_gradient;
    Work output_sent, input_gradient_sent;
  };

  Slot& slot_of(int64_t micro_batch);
  void forward(int64_t step, const StageTask& task, std::span<double> losses);
  void backward(const StageTask& task);

  const TrainSettings& settings_;
  const MicroBatches& micro_batches_;
  Runtime& runtime_;
  const Plan& plan_;
  Coordinates place_;
  Mesh mesh_;
  ModelGroups groups_;
  Parallel parallel_;
  RuntimeWeights weights_;
  StageLinks links_;
  int64_t in_flight_;
  std::vector<StageTask> tasks_;  // of a step
  StageModules modules_;
  // Of modules, in a step and in an evaluation; the runtime may look at them
  // until the next.
  std::vector<int32_t> uses_, evaluation_uses_;
  Decoder<float> decoder_;
  std::vector<Slot> slots_;
  std::vector<Pass<float>> passes_;  // of a task
};

}  // namespace canzona
