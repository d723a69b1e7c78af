// Weights that are available only during a use, and micro-batches that share
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_lent_weights.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::decoder_uses_test {
namespace {

struct Kind {
  bool tied = false;
  bool experts = false;
  Recompute recompute = Recompute::kOff;
  int64_t head_chunk = 0;
  bool qk_norm = true;
};

DecoderConfig config_of(const Kind& kind) {
  DecoderConfig config = small_decoder();
  config.architecture.kv_heads = 4;
  config.architecture.tied = kind.tied;
  config.architecture.qk_norm = kind.qk_norm;
  config.recompute = kind.recompute;
  config.head_chunk = kind.head_chunk;
  if (kind.experts)  // more than are chosen
    config.architecture.experts = {
        .count = 12, .ffn = 6, .shared = 1, .first_layer = 1};
  return config;
}

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = {
      {},
      {.tied = true},
      {.experts = true},
      {.tied = true, .experts = true, .recompute = Recompute::kLayer},
      {.recompute = Recompute::kLayer, .head_chunk = 3},
      {.tied = true, .head_chunk = 3},
      {.qk_norm = false},
      {.tied = true,
       .experts = true,
       .recompute = Recompute::kLayer,
       .qk_norm = false}};
  return kinds;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values)
    most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

void expect_close(const std::vector<std::vector<float>>& got,
                  const std::vector<std::vector<float>>& right) {
  for (size_t t = 0; t < right.size(); ++t)
    for (size_t i = 0; i < right[t].size(); ++i)
      ASSERT_NEAR(got[t][i], right[t][i], 1e-6 * largest(right[t]))
          << "tensor " << t;
}

TEST(DecoderUses, AreAllThatIsReadAndAdded) {
  for (const Kind& kind : all_kinds()) {
    const DecoderTrial trial(config_of(kind));
    Whole<float> plain(trial);
    const double right = plain.step(trial);
    const Parallel whole = whole_model(trial.config);
    const auto engine = make_cpu_engine();
    LentWeights weights(trial, whole);
    Decoder<float> decoder(trial.config, trial.shapes, whole, *engine, weights);
    EXPECT_EQ(decoder.forward(0, trial.sequences, nullptr, nullptr), right);
    decoder.backward(0, trial.sequences, nullptr, nullptr, true);
    weights.expect_all_left(1);
    EXPECT_EQ(weights.totals, plain.weights.gradients);
    // Query and key norm; a tied head's waits for the embedding.
    EXPECT_LE(weights.most_taken, kind.tied ? 3 : 2);
  }
}

TEST(DecoderUses, EveryMicroBatchAnnouncesEveryTensor) {
  const DecoderTrial trial(config_of({.tied = true, .experts = true}));
  Whole<float> plain(trial);
  plain.step(trial, false);
  plain.step(trial, false);
  plain.step(trial, true);
  const Parallel whole = whole_model(trial.config);
  const auto engine = make_cpu_engine();
  LentWeights weights(trial, whole);
  Decoder<float> decoder(trial.config, trial.shapes, whole, *engine, weights);
  for (int64_t m = 1; m <= 3; ++m) {
    decoder.forward(0, trial.sequences, nullptr, nullptr);
    decoder.backward(0, trial.sequences, nullptr, nullptr, m == 3);
    weights.expect_all_left(m);
  }
  EXPECT_EQ(weights.readies.size(), trial.shapes.tensors.size());
  expect_close(weights.totals, plain.weights.gradients);
}

// Norms of heads are summed over ranks with the last micro-batch and leave as
// zeros before: exactly the bits of gradients that do not leave.
TEST(DecoderUses, NormsOfHeadsLeaveWithTheLastMicroBatch) {
  const DecoderTrial trial(config_of({.recompute = Recompute::kLayer}));
  run_ranks(2, [&](Communicator& world) {
    Parallel parallel = whole_model(trial.config);
    parallel.tp = &world;
    const auto engine = make_cpu_engine();
    TrialWeights<float> kept(trial, parallel);
    LentWeights lent(trial, parallel);
    Decoder<float> a(trial.config, trial.shapes, parallel, *engine, kept);
    Decoder<float> b(trial.config, trial.shapes, parallel, *engine, lent);
    std::vector<size_t> norms;
    for (size_t t = 0; t < kept.gradients.size(); ++t) {
      const std::string& name = trial.shapes.tensors[t].name;
      if (name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight"))
        norms.push_back(t);
    }
    ASSERT_EQ(norms.size(), 4);
    for (const bool last : {false, false, true}) {
      for (Decoder<float>* decoder : {&a, &b}) {
        decoder->forward(0, trial.sequences, nullptr, nullptr);
        decoder->backward(0, trial.sequences, nullptr, nullptr, last);
      }
      for (const size_t t : norms) {
        EXPECT_EQ(lent.totals[t], kept.gradients[t]);
        EXPECT_EQ(largest(lent.totals[t]) > 0, last);
      }
    }
    lent.expect_all_left(3);
    expect_close(lent.totals, kept.gradients);
  });
}

// Three slots; the outer two run together.
struct Pair {
  explicit Pair(const Kind& kind)
      : first(config_of(kind)), second(config_of(kind)) {
    std::ranges::reverse(second.sequences);
    passes = {Pass<float>{.slot = 2, .sequences = first.sequences},
              Pass<float>{.slot = 0, .sequences = second.sequences}};
  }
  DecoderTrial first, second;
  std::array<Pass<float>, 2> passes;
};

TEST(DecoderUses, MicroBatchesShareOne) {
  for (const Kind& kind : all_kinds()) {
    const Pair pair(kind);
    const DecoderTrial& trial = pair.first;
    Whole<float> plain(trial);
    const std::array<double, 2> right = {plain.step(trial, false),
                                         plain.step(pair.second, true)};
    const Parallel whole = whole_model(trial.config);
    const auto engine = make_cpu_engine();
    LentWeights weights(trial, whole);
    Decoder<float> decoder(trial.config, trial.shapes, whole, *engine, weights,
                           3, 2);
    std::array<double, 2> losses;
    decoder.forward(pair.passes, losses);
    EXPECT_EQ(losses, right);
    decoder.backward(pair.passes, true);
    weights.expect_all_left(1);
    if (kind.tied)
      expect_close(weights.totals, plain.weights.gradients);
    else
      EXPECT_EQ(weights.totals, plain.weights.gradients);
    const std::vector<int32_t> uses =
        kind.tied ? std::vector<int32_t>{0, 1, 2, 0, 3, 0, 3, 2, 1, 0}
                  : std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0};
    EXPECT_EQ(weights.waits, uses);
  }
}

TEST(DecoderUses, NeedTheMemoryThatIsPredicted) {
  const Pair pair({});
  const DecoderConfig& config = pair.first.config;
  const Parallel whole = whole_model(config);
  const auto engine = make_cpu_engine();
  TrialWeights<float> weights(pair.first, whole);
  Decoder<float> two(config, pair.first.shapes, whole, *engine, weights, 3, 2);
  EXPECT_EQ(two.reserved(), decoder_memory<float>(config, whole, 3, 2));
  EXPECT_GT(two.reserved(), decoder_memory<float>(config, whole, 3));
  Decoder<float> one(config, pair.first.shapes, whole, *engine, weights, 3);
  std::array<double, 2> losses;
  one.forward(pair.passes, losses);
  EXPECT_THROW(one.backward(pair.passes, true), InternalError);
  EXPECT_THROW(decoder_memory<float>(config, whole, 1, 2), UsageError);
  EXPECT_THROW(decoder_memory<float>(config, whole, 1, 0), UsageError);
}

TEST(DecoderUses, ASlotIsInOneOfThePassesAlone) {
  Pair pair({});
  pair.passes[1].slot = 2;
  Whole<float> whole(pair.first, 3);
  std::array<double, 2> losses;
  EXPECT_THROW(whole.decoder.forward(pair.passes, losses), InternalError);
}

// The head is on another stage than the embedding: its table is always
// available.
TEST(DecoderUses, ATiedHeadOnAStageOfItsOwnWaitsForItsModuleAlone) {
  const DecoderTrial trial(config_of({.tied = true}));
  const Parallel rear{
      .first_layer = 1, .num_layers = 1, .has_embedding = false};
  const auto engine = make_cpu_engine();
  TrialWeights<float> weights(trial, rear);
  Decoder<float> decoder(trial.config, trial.shapes, rear, *engine, weights);
  std::vector<float> stream(static_cast<size_t>(
      trial.config.tokens() * trial.config.architecture.hidden));
  decoder.forward(0, trial.sequences, stream.data(), nullptr);
  decoder.backward(0, trial.sequences, nullptr, stream.data(), true);
  EXPECT_THAT(weights.waits, testing::ElementsAre(2, 3, 3, 2));
  EXPECT_EQ(weights.releases, weights.waits);
  EXPECT_EQ(std::ranges::count(weights.readies, 0), 1);
}

}  // namespace
}  // namespace canzona::model::decoder_uses_test
