// A rank's pipeline stage: its sequences, its weights from the runtime, and the
// forward and backward of its layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/data/batches.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/trained_decoder.h"
#include "canzona/model/weights.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/engine_lanes.h"
#include "canzona/runtime/runtime.h"
#include "canzona/trace/trace.h"
#include "canzona/train/stage_links.h"
#include "canzona/train/trainer.h"

namespace canzona::train {

// Spans of a trace in which modules are in use, forward and backward, waits
// included; of the device's work where its clock is given.
//
//   ModuleSpans spans(model, trace, rank, nullptr);
//   spans.begin(module);         // its parameters are there
//   spans.gradient_asked();      // so it is a backward
//   spans.end(module);
//
// If modules are in use at the same time (a tied head and the embedding), the
// span is of the one that began last. One thread at a time.
class ModuleSpans {
 public:
  // `trace` may be null; otherwise it must outlive this.
  ModuleSpans(const Model& model, Trace* trace, int rank, TrackClock* device) {
    if (trace == nullptr) return;
    track_ = trace->add_track(
        rank, device == nullptr ? "modules" : "GPU stream, modules", device);
    for (int32_t m = 0; m < num_modules(model); ++m)
      labels_.push_back(trace->keep(module_name(model, m)));
  }

  void begin(int32_t module) {
    current_ = module;
    is_backward_ = false;
    if (track_ != nullptr) begin_ = track_->now();
  }
  void gradient_asked() { is_backward_ = true; }
  void end(int32_t module) {
    if (module != current_) return;
    if (track_ != nullptr)
      track_->add_span({is_backward_ ? "backward" : "forward",
                        labels_[static_cast<size_t>(module)]},
                       begin_, track_->now());
    current_ = -1;
  }
  // The device must have done everything.
  void settle() {
    if (track_ != nullptr) track_->settle();
  }

 private:
  Track* track_ = nullptr;
  std::vector<std::string_view> labels_;  // by module, if there is a track
  int32_t current_ = -1;
  bool is_backward_ = false;
  int64_t begin_ = 0;
};

// The decoder's parameters and gradients as a runtime holds them: of type Real,
// or in bf16 (uint16_t) for a decoder on a device.
//
//   RuntimeTensors<uint16_t> weights(runtime, trace, world.rank(), clock);
//   auto decoder = make_device_decoder(config, model, engine, weights);
//
// One thread at a time; the runtime must outlive it.
template <class Real>
class RuntimeTensors : public Weights<Real, float> {
 public:
  // `trace` may be null, and so may `device` (ModuleSpans).
  RuntimeTensors(Runtime& runtime, Trace* trace, int rank, TrackClock* device)
      : runtime_(runtime), spans_(runtime.plan().model, trace, rank, device) {}

  void wait(int32_t module) override {
    runtime_.wait_params(module);
    spans_.begin(module);
  }
  void release(int32_t module) override {
    spans_.end(module);
    runtime_.release_params(module);
  }
  const Real* parameter(int32_t tensor) override {
    if constexpr (sizeof(Real) == sizeof(uint16_t))
      return runtime_.bf16_parameter(tensor).data();
    else
      return runtime_.parameter(tensor).data();
  }
  float* gradient(int32_t tensor) override {
    spans_.gradient_asked();
    return runtime_.gradient(tensor).data();
  }
  // Asking for the gradient creates one of zeros if nothing was added.
  void ready(int32_t tensor, bool /*last*/) override {
    runtime_.gradient(tensor);
    runtime_.grad_ready(tensor);
  }
  void settle_spans() { spans_.settle(); }

 protected:
  Runtime& runtime_;
  ModuleSpans spans_;
};

// The same for a decoder on a CPU, which may be one of several stages.
//
//   RuntimeWeights weights(world, runtime, trace);
//   Decoder<float> decoder(config, model, parallel, engine, weights);
//   weights.refresh();
//
// If the head is the embedding but lies on another pipeline stage, the last
// stage borrows the embedding: the first stage sends it before the step, and
// receives the head's gradient before its own is announced for the last time in
// the step.
//
// All ranks must construct theirs at the same time; `world` must outlive it.
class RuntimeWeights : public RuntimeTensors<float> {
 public:
  // `trace` may be null.
  RuntimeWeights(Communicator& world, Runtime& runtime, Trace* trace);

  // Call it on all ranks before the first forward after new parameters.
  void refresh();
  // Returns how many numbers a rank keeps here to borrow or lend the embedding.
  static int64_t extra_elements(const Plan& plan, const Coordinates& at);
  double waited() const;
  double busy() const;

  const float* parameter(int32_t tensor) override;
  float* gradient(int32_t tensor) override;
  void ready(int32_t tensor, bool last) override;

 private:
  bool shares(int32_t tensor) const { return tensor == shared_; }
  void add_head_gradient();

  int32_t shared_ = -1;  // the embedding, if two stages use it
  bool borrows_ = false;
  std::unique_ptr<OneWay> weights_, gradients_;
  std::vector<float> borrowed_, gradient_;  // at the last stage
  std::vector<float> arrived_;              // at the first
  Work gradient_sent_;
};

// Determines which sequences a data-parallel rank trains on in a step.
//
//   MicroBatches share(batches, config, global_batch, home, num_homes);
//   share.read_train(step, m, sequences);
//
// Micro-batches are numbered over the whole step and distributed round-robin:
// number m of a home is number m·homes + home of the step. One thread at a
// time; `batches` must outlive it.
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
// of an evaluation. Where the plan keeps bf16 parameters, the decoder is that
// of the engine's device.
//
//   Stage stage(settings, micro_batches, runtime, world, engine);
//   stage.learn(step);
//   std::span<const double> losses = stage.losses();
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
  ~Stage();

  // Runs forward and backward over all micro-batches and announces gradients;
  // on a device it only issues them.
  void learn(int64_t step);
  // The mean losses of this home's micro-batches in the last learn(), 0 if the
  // stage does not have the head. Waits for them.
  const std::vector<double>& losses();
  // The same over held-out sequences, forward only; returns the mean over those
  // that count in each round.
  std::vector<double> evaluate(const EvaluationRounds& rounds);

  // The largest logits of this rank's layers and heads in the last learn(), and
  // in what was evaluated since.
  std::span<const float> largest_logits() const {
    return decoder_->largest_logits();
  }
  // Describes what else bits depend on besides the inputs; empty on a CPU.
  std::string describe() const { return decoder_->describe(); }

  double waited() const;
  double busy() const;
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
  std::unique_ptr<TrainedDecoder<float>> make_decoder(Communicator& world);
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
  Engine& engine_;
  // Exactly one of these two sets of weights exists.
  std::unique_ptr<RuntimeWeights> weights_;
  std::optional<LaneTimes> device_times_;  // of a trace
  std::unique_ptr<RuntimeTensors<uint16_t>> device_weights_;
  StageLinks links_;
  int64_t in_flight_;
  std::vector<StageTask> tasks_;  // for one step
  // Uses of modules in a step and in an evaluation; the runtime may read them
  // until the next one begins.
  std::vector<int32_t> uses_, evaluation_uses_;
  std::unique_ptr<TrainedDecoder<float>> decoder_;
  std::vector<double> losses_;
  std::vector<Slot> slots_;
  std::vector<Pass<float>> passes_;  // of a task
};

}  // namespace canzona::train
