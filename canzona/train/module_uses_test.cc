#include "canzona/train/stage_links.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"

namespace canzona::train::module_uses_test {
namespace {

using ::testing::ElementsAre;

// All weights are ones; records waits and announcements.
class RecordingWeights : public Weights<float> {
 public:
  explicit RecordingWeights(const Model& shapes)
      : announced(shapes.tensors.size()) {
    for (const Tensor& tensor : shapes.tensors)
      size_ = std::max(size_, static_cast<size_t>(tensor.elements()));
    parameters_.assign(size_, 0.1F);
    gradients_.resize(size_);
  }
  void wait(int32_t module) override { waits.push_back(module); }
  void release(int32_t module) override { releases.push_back(module); }
  const float* parameter(int32_t) override { return parameters_.data(); }
  float* gradient(int32_t) override { return gradients_.data(); }
  void ready(int32_t tensor, bool) override {
    ++announced[static_cast<size_t>(tensor)];
  }

  std::vector<int32_t> waits, releases;
  std::vector<int64_t> announced;  // by tensor

 private:
  size_t size_ = 0;
  std::vector<float> parameters_, gradients_;
};

struct Kind {
  bool tied = false;
  bool experts = false;
  Recompute recompute = Recompute::kOff;
};

DecoderConfig config_of(const Kind& kind) {
  DecoderConfig config;
  config.architecture = {.layers = 4,
                         .hidden = 4,
                         .ffn = 4,
                         .vocab = 8,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 2,
                         .tied = kind.tied,
                         .qk_norm = true};
  if (kind.experts) config.architecture.experts = {.count = 4, .ffn = 2};
  config.length = 3;
  config.recompute = kind.recompute;
  return config;
}

Parallel stage_of(int64_t stage, int64_t stages) {
  const int64_t layers = 4 / stages;
  return {.first_layer = stage * layers,
          .num_layers = layers,
          .has_embedding = stage == 0,
          .has_head = stage == stages - 1};
}

// A decoder of one stage, alone: input from other stages is 0.
class LoneStage {
 public:
  LoneStage(const DecoderConfig& config, const Parallel& parallel,
            std::span<const StageTask> tasks, int64_t in_flight)
      : shapes_(decoder_shapes(config, "stage")),
        weights(shapes_),
        in_flight_(in_flight),
        engine_(make_cpu_engine()),
        decoder_(config, shapes_, parallel, *engine_, weights, in_flight,
                 most_together(tasks)),
        sequences_(static_cast<size_t>(config.length + 1), 1),
        in_(static_cast<size_t>(config.tokens() * config.architecture.hidden)),
        out_(in_.size()) {}

  void run(const StageTask& task) {
    std::vector<Pass<float>> passes;
    for (int64_t i = 0; i < task.count; ++i)
      passes.push_back({(task.micro_batch + i) % in_flight_, sequences_,
                        in_.data(), out_.data()});
    std::vector<double> losses(passes.size());
    if (task.forward)
      decoder_.forward(passes, losses);
    else
      decoder_.backward(passes, false);
  }
  void evaluate() { decoder_.evaluate(sequences_, in_.data(), out_.data()); }

 private:
  Model shapes_;

 public:
  RecordingWeights weights;

 private:
  int64_t in_flight_;
  std::unique_ptr<Engine> engine_;
  Decoder<float> decoder_;
  std::vector<int32_t> sequences_;
  std::vector<float> in_, out_;
};

std::vector<int32_t> uses_of(const DecoderConfig& config, int64_t stages,
                             int64_t stage, std::span<const StageTask> tasks) {
  const Mesh mesh{.pp = static_cast<int32_t>(stages)};
  return waited_modules(stage_calls(decoder_shapes(config, "stage"), mesh,
                                    static_cast<int32_t>(stage), tasks));
}

std::vector<StageTask> forwards(int64_t count) {
  return std::vector<StageTask>(static_cast<size_t>(count));
}

// Lending the embedding is the caller's use, before the decoder's first.
std::vector<int32_t> of_decoder(std::vector<int32_t> uses, bool lends) {
  if (lends) uses.erase(uses.begin());
  return uses;
}

void expect_uses(const Kind& kind, int64_t stage, int64_t stages,
                 int64_t micro_batches, bool paired) {
  const std::string what = testing::PrintToString(
      std::tuple(kind.tied, kind.experts, kind.recompute != Recompute::kOff,
                 stage, stages, micro_batches, paired));
  const DecoderConfig config = config_of(kind);
  const Parallel parallel = stage_of(stage, stages);
  const bool lends = kind.tied && stage == 0 && stages > 1;
  const auto single = schedule_1f1b(stage, stages, micro_batches);
  const auto tasks = paired ? pair_neighbours(single) : single;
  LoneStage lone(config, parallel, tasks,
                 most_in_flight(stage, stages, micro_batches));
  for (const StageTask& task : tasks) lone.run(task);
  EXPECT_EQ(lone.weights.waits,
            of_decoder(uses_of(config, stages, stage, tasks), lends))
      << what;
  EXPECT_EQ(lone.weights.releases, lone.weights.waits) << what;
  for (const int64_t times : lone.weights.announced)
    EXPECT_TRUE(times == 0 || times == num_announcements(tasks)) << what;
  lone.weights.waits.clear();
  lone.evaluate();
  lone.evaluate();
  EXPECT_EQ(lone.weights.waits,
            of_decoder(uses_of(config, stages, stage, forwards(2)), lends))
      << what;
}

TEST(ModuleUses, AreWhatDecodersWaitFor) {
  for (const Kind& kind : {Kind{}, Kind{.tied = true}, Kind{.experts = true},
                           Kind{.tied = true, .recompute = Recompute::kLayer}})
    for (const int64_t stages : {1, 2, 4})
      for (int64_t stage = 0; stage < stages; ++stage)
        for (const int64_t micro_batches : {1, 2, 3, 5})
          for (const bool paired : {false, true})
            expect_uses(kind, stage, stages, micro_batches, paired);
}

DecoderConfig of_layers(int64_t layers, bool tied) {
  DecoderConfig config = config_of({.tied = tied});
  config.architecture.layers = layers;
  return config;
}

TEST(ModuleUses, Example) {
  const DecoderConfig config = of_layers(2, true);
  EXPECT_THAT(uses_of(config, 1, 0, schedule_1f1b(0, 1, 1)),
              ElementsAre(0, 1, 2, 0, 3, 0, 3, 2, 1, 0));
  EXPECT_THAT(uses_of(config, 1, 0, forwards(2)),
              ElementsAre(0, 1, 2, 0, 3, 0, 1, 2, 0, 3));
}

TEST(ModuleUses, BeginWithAnEmbeddingThatIsLent) {
  const DecoderConfig config = of_layers(2, true);
  EXPECT_THAT(uses_of(config, 2, 0, schedule_1f1b(0, 2, 1)),
              ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(uses_of(config, 2, 0, forwards(1)), ElementsAre(0, 0, 1));
  EXPECT_THAT(uses_of(config, 2, 0, forwards(0)), ElementsAre(0));
}

// Stage 0 of 4 runs ahead by 3: of 4 consecutive forwards two are saved, and
// likewise for backwards, with an embedding and 2 layers.
TEST(ModuleUses, PairedMicroBatchesSpareGathersAndScatters) {
  const DecoderConfig config = of_layers(8, false);
  const auto single = schedule_1f1b(0, 4, 8);
  const auto paired = pair_neighbours(single);
  EXPECT_EQ(uses_of(config, 4, 0, single).size(),
            uses_of(config, 4, 0, paired).size() + (2 + 2) * 3);
  EXPECT_EQ(num_announcements(single), num_announcements(paired) + 2);
}

TEST(ModuleUses, TheLastStageSparesNothing) {
  const DecoderConfig config = of_layers(8, false);
  const auto single = schedule_1f1b(3, 4, 8);
  const auto paired = pair_neighbours(single);
  EXPECT_EQ(uses_of(config, 4, 3, single), uses_of(config, 4, 3, paired));
  EXPECT_EQ(num_announcements(single), num_announcements(paired));
}

}  // namespace
}  // namespace canzona::train::module_uses_test
