// Small runs for tests: a model of a few thousand parameters is trained on a
// made-up text on thread ranks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "canzona/comm/thread/run_ranks.h"
#include "canzona/plan/make_plan.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/trainer.h"

namespace canzona::train {

// Letters that follow each other by a rule, with some noise.
class TestTokens : public TokenSource {
 public:
  explicit TestTokens(int64_t size, int32_t vocab = 32) {
    uint32_t state = 1;
    for (int64_t i = 0; i < size; ++i) {
      state = state * 1664525 + 1013904223;
      const int32_t last = tokens_.empty() ? 0 : tokens_.back();
      const bool noise = (state >> 24) < 32;
      tokens_.push_back(noise ? static_cast<int32_t>((state >> 8) % 32) % vocab
                              : (5 * last + 3) % vocab);
    }
  }
  int64_t size() const override { return std::ssize(tokens_); }
  void read(int64_t first, std::span<int32_t> to) const override {
    std::copy_n(tokens_.begin() + first, to.size(), to.begin());
  }
  std::string describe() const override { return "test tokens"; }
  std::string digest() const override { return "0"; }

 private:
  std::vector<int32_t> tokens_;
};

struct TestRun {
  std::string mesh = "dp=1";
  std::string rule = "muon";
  std::string strategy = "balanced";
  std::string split = "none";
  bool tied = false;
  int64_t experts = 0;
  Recompute recompute = Recompute::kOff;
  bool reuse = false;
  std::string zero = "zero1";
  std::string zero_experts = {};
  MessageUnit message = MessageUnit::kModule;
  Overlap overlap = Overlap::kBackground;
  int64_t steps = 6;
  int64_t bucket_elements = 5000;
  double clip = 1;
  DType wire = DType::kFp32;
  DType parameters = DType::kFp32;
  std::string device = "cpu";
  // In the place of the device's own.
  std::function<std::unique_ptr<Engine>()> make_engine = {};
  const std::atomic<int>* stop = nullptr;
  int64_t eval_sequences = 1 << 20;
  int64_t micro_batch = 2;
  int64_t max_skipped = 0;
  double spike_factor = 0;
  bool spike_stop = false;
  double adamw_rate = 0.003;
  RunState start = {};
  std::optional<LoadRequest> resume = {};
  TrainSaving saving = {};
  int64_t global_batch = 16;
  int64_t check_replicas = 0;
  int64_t num_tokens = 3000;
  std::function<void(TrainSettings&)> adjust = {};
  std::function<void(int64_t, int, Runtime&)> before_step = {};
  // Called on rank 0 with what is being reported: "step 1", "evaluating", "eval
  // 1", "tensor", "weights", "result".
  std::function<void(const std::string&)> told = {};
};

struct TestOutcome {
  TrainResult result;
  std::vector<StepMetrics> steps;
  std::map<int32_t, std::vector<float>> tensors;
  TrainResult before_evaluation;
  std::vector<SavedStep> saved;       // in order
  std::optional<LoadedState> loaded;  // of a resumed run
  RunState resumed;                   // its start
};

inline TrainSettings test_settings(const TestRun& run) {
  TrainSettings settings;
  DecoderConfig& decoder = settings.decoder;
  decoder.architecture = {.layers = 4,
                          .hidden = 16,
                          .ffn = 24,
                          .vocab = 32,
                          .heads = 4,
                          .kv_heads = 4,
                          .head_dim = 4,
                          .tied = run.tied,
                          .qk_norm = true};
  if (run.experts > 0)
    decoder.architecture.experts = {.count = run.experts, .ffn = 8};
  decoder.length = 12;
  decoder.micro_batch = run.micro_batch;
  decoder.recompute = run.recompute;
  settings.steps = run.steps;
  settings.start = run.start;
  settings.resume = run.resume;
  settings.saving = run.saving;
  settings.data = {.description = "test tokens", .digest = "0", .length = 12};
  settings.global_batch = run.global_batch;
  settings.seed = 5;
  settings.learning_rate = [](int64_t) { return 0.02; };
  settings.adamw_learning_rate = [rate = run.adamw_rate](int64_t) {
    return rate;
  };
  settings.clip_norm = run.clip;
  settings.eval_every = 3;
  settings.eval_sequences = run.eval_sequences;
  settings.max_skipped = run.max_skipped;
  settings.spike_factor = run.spike_factor;
  settings.spike_stop = run.spike_stop;
  settings.runtime.wire = run.wire;
  settings.runtime.overlap = run.overlap;
  settings.stop = run.stop;
  settings.reuse = run.reuse;
  settings.check_replicas = run.check_replicas;
  if (run.before_step)
    settings.at_point = [before = run.before_step](const TrainMoment& at) {
      if (at.point == TrainPoint::kForward)
        before(at.step, at.rank, at.runtime);
    };
  if (run.adjust) run.adjust(settings);
  return settings;
}

inline Plan test_plan(const TestRun& run, const TrainSettings& settings) {
  Model model = decoder_shapes(settings.decoder, "test");
  route(model, {});
  const auto rule =
      make_rule_facts(run.rule, with_device(run.rule, {}, run.device));
  PlanOptions options;
  options.strategy = run.strategy;
  options.splits = parse_splits(run.split);
  options.parameters = run.parameters;
  options.bucket_elements = run.bucket_elements;
  const Mesh mesh = parse_mesh(run.mesh);
  options.zero.sizes = parse_zero(run.zero, mesh.homes());
  if (!run.zero_experts.empty())
    options.zero.experts = parse_zero(run.zero_experts, mesh.expert_homes());
  options.zero.message = run.message;
  return make_plan({model, mesh, *rule, options});
}

class TestObserver : public TrainObserver {
 public:
  TestObserver(const TestRun& run, TestOutcome& outcome)
      : told_(run.told), outcome_(outcome) {}
  void on_resumed(const LoadedState& loaded, const RunState& state) override {
    outcome_.loaded = loaded;
    outcome_.resumed = state;
  }
  void on_saved(const SavedStep& saved) override {
    outcome_.saved.push_back(saved);
    tell("saved " + std::to_string(saved.step));
  }
  void on_step(const StepMetrics& metrics) override {
    outcome_.steps.push_back(metrics);
    tell("step " + std::to_string(metrics.step));
  }
  void on_evaluating(int64_t, int64_t) override { tell("evaluating"); }
  void on_evaluation(int64_t step, double loss) override {
    if (!outcome_.steps.empty()) outcome_.steps.back().eval_loss = loss;
    tell("eval " + std::to_string(step));
  }
  void on_tensor(int32_t tensor, std::span<const float> whole) override {
    outcome_.tensors[tensor].assign(whole.begin(), whole.end());
    if (tensor == 0) tell("tensor");
  }
  void on_weights() override { tell("weights"); }
  void on_result(const TrainResult& so_far) override {
    outcome_.before_evaluation = so_far;
    tell("result");
  }

 private:
  void tell(const std::string& what) const {
    if (told_) told_(what);
  }

  const std::function<void(const std::string&)>& told_;
  TestOutcome& outcome_;
};

inline TestOutcome run_test(const TestRun& run,
                            const CommunicatorOptions& communicator = {}) {
  const TrainSettings settings = test_settings(run);
  const Plan plan = test_plan(run, settings);
  const TestTokens tokens(run.num_tokens);
  const Batches batches(tokens, {.length = settings.decoder.length, .seed = 9});
  TestOutcome outcome;
  TestObserver observer(run, outcome);
  run_ranks(plan.mesh.world(), {.communicator = communicator},
            [&](Communicator& world) {
              const auto engine =
                  run.make_engine ? run.make_engine() : make_engine(run.device);
              const TrainResult result =
                  train(settings, plan, batches, world, *engine, &observer);
              if (world.rank() == 0) outcome.result = result;
            });
  return outcome;
}

}  // namespace canzona::train
