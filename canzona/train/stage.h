// Determines which sequences a data-parallel rank trains on in a step.
//
//   MicroBatches share(batches, config, global_batch, home, num_homes);
//   share.read_train(step, m, sequences);
//
// Micro-batches are numbered over the whole step and distributed round-robin:
// number m of a home is number m·homes + home of the step. One thread at a
// time; `batches` must outlive it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/model/decoder.h"
#include "canzona/model/decoder_config.h"
#include "canzona/train/runtime_weights.h"
#include "canzona/train/stage_links.h"
#include "canzona/train/trainer.h"

namespace canzona {

class MicroBatches {
 public:
  MicroBatches(const Batches& batches, const DecoderConfig& config,
               int64_t global_batch, int32_t home, int32_t num_homes)
      : batches_(batches),
        size_(config.micro_batch),
        length_(config.length),
        global_batch_(global_batch),
        home_(home),
        num_homes_(num_homes) {}

  // Makes the next step, `step` + 1, begin with sequence `sequences` of the
  // run.
  void go_on_after(int64_t step, int64_t sequences) {
    first_step_ = step;
    first_sequence_ = sequences;
  }
  // The number of sequences consumed by all ranks after step 1, 2, …
  int64_t sequences_after(int64_t step) const {
    return first_sequence_ + (step - first_step_) * global_batch_;
  }
  int64_t tokens_after(int64_t step) const {
    return sequences_after(step) * length_;
  }

  int64_t per_home() const { return global_batch_ / (size_ * num_homes_); }
  int64_t tokens_per_step() const { return global_batch_ * length_; }

  // Steps are 1, 2, …; `to` has micro_batch · (length + 1) tokens.
  void read_train(int64_t step, int64_t m, std::span<int32_t> to) const {
    const int64_t first =
        sequences_after(step - 1) + (m * num_homes_ + home_) * size_;
    for (int64_t i = 0; i < size_; ++i)
      batches_.train(first + i, sequence(to, i));
  }

  // The number of sequences of an evaluation: `wanted`, or fewer if there are
  // not that many.
  int64_t num_held_out(int64_t wanted) const {
    return std::min(wanted, batches_.num_held_out());
  }
  // The number of rounds in which every home has a micro-batch; the last ones
  // may count only in part or not at all.
  int64_t held_out_rounds(int64_t sequences) const {
    const int64_t at_once = size_ * num_homes_;
    return (sequences + at_once - 1) / at_once;
  }
  int64_t held_out_in(int64_t rounds) const {
    return rounds * size_ * num_homes_;
  }
  int64_t number_in_round(int64_t round) const {
    return round * num_homes_ + home_;
  }
  // Returns how many sequences of the micro-batch of this number are among the
  // first `sequences`.
  int64_t counted(int64_t number, int64_t sequences) const {
    return std::clamp<int64_t>(sequences - number * size_, 0, size_);
  }
  // Positions that do not count are filled with sequences from the first one
  // on.
  void read_held_out(int64_t number, std::span<int32_t> to) const {
    for (int64_t i = 0; i < size_; ++i)
      batches_.held_out((number * size_ + i) % batches_.num_held_out(),
                        sequence(to, i));
  }

 private:
  std::span<int32_t> sequence(std::span<int32_t> all, int64_t i) const {
    return all.subspan(static_cast<size_t>(i * (length_ + 1)),
                       static_cast<size_t>(length_ + 1));
  }

  const Batches& batches_;
  int64_t size_, length_, global_batch_;
  int64_t first_step_ = 0, first_sequence_ = 0;
  int32_t home_, num_homes_;
};

// A rank's pipeline stage: its layers, run over the micro-batches of a step or
// of an evaluation.
//
//   Stage stage(settings, micro_batches, runtime, world, engine);
//   std::vector<double> losses = stage.learn(step);
//   std::vector<double> held_out = stage.evaluate({.sequences = 100,
//                                                  .first = 0, .count = 4});
//
// All ranks must call the same functions in the same order. One thread at a
// time; all arguments must outlive it.

// Returns the tasks of a stage in a step, in order.
std::vector<StageTask> tasks_of(const TrainSettings& settings, const Mesh& mesh,
                                int32_t stage);

// A range of rounds of an evaluation over the first `sequences` held-out ones.
struct EvaluationRounds {
  int64_t sequences = 0;
  int64_t first = 0;
  int64_t count = 0;
};

class Stage {
 public:
  Stage(const TrainSettings& settings, const MicroBatches& micro_batches,
        Runtime& runtime, Communicator& world, Engine& engine);

  // Runs forward and backward over all micro-batches and announces gradients.
  // Returns the mean losses of this home's micro-batches, 0 if the stage does
  // not have the head.
  std::vector<double> learn(int64_t step);
  // The same over held-out sequences, forward only; returns the mean over those
  // that count in each round.
  std::vector<double> evaluate(const EvaluationRounds& rounds);

  double waited() const;
  double busy() const;
  // The clock of this stage's modules.
  ModuleClock& clock() { return weights_.clock(); }
  int64_t reserved() const;  // bytes

  // Returns the bytes that a stage would reserve.
  static int64_t memory(const TrainSettings& settings, const Plan& plan,
                        const Coordinates& at);

 private:
  // The state of a micro-batch between forward and backward.
  struct Slot {
    std::vector<int32_t> sequences;
    std::vector<float> input, output;  // with their gradients below
    std::vector<float> input_gradient, output_gradient;
    Work output_sent, input_gradient_sent;
  };

  Slot& slot_of(int64_t micro_batch);
  std::vector<int32_t> uses_of_modules(std::span<const StageTask> tasks) const {
    return waited_modules(stage_calls(plan_.model, mesh_, at_.stage, tasks));
  }
  void forward(int64_t step, const StageTask& task, std::span<double> losses);
  void backward(const StageTask& task);

  const TrainSettings& settings_;
  const MicroBatches& micro_batches_;
  Runtime& runtime_;
  const Plan& plan_;
  Coordinates at_;
  Mesh mesh_;
  ModelGroups groups_;
  Parallel parallel_;
  RuntimeWeights weights_;
  StageLinks links_;
  int64_t in_flight_;
  std::vector<StageTask> tasks_;  // for one step
  // Uses of modules in a step and in an evaluation; the runtime may read them
  // until the next one begins.
  std::vector<int32_t> uses_, evaluation_uses_;
  Decoder<float> decoder_;
  std::vector<Slot> slots_;
  std::vector<Pass<float>> passes_;  // of a task
};

}  // namespace canzona
