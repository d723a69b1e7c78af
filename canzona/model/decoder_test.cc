#include "canzona/model/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "canzona/base/error.h"
#include "canzona/linalg/engine.h"
#include "canzona/model/test_decoder.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::decoder_test {
namespace {

using ::testing::ElementsAre;

DecoderConfig long_decoder() {
  DecoderConfig config = small_decoder();
  config.length = 140;
  config.micro_batch = 3;
  config.architecture.tied = false;
  return config;
}

DecoderConfig without_qk_norm(DecoderConfig config) {
  config.architecture.qk_norm = false;
  return config;
}

TEST(Decoder, HasTheLossOfPlainLoops) {
  for (const DecoderConfig& config :
       {small_decoder(), long_decoder(), without_qk_norm(small_decoder()),
        without_qk_norm(long_decoder())}) {
    const DecoderTrial trial(config);
    const double right = reference_loss(trial, trial.parameters);
    Whole<double> exact(trial);
    EXPECT_NEAR(exact.decoder.evaluate(trial.sequences, nullptr, nullptr),
                right, 1e-12 * right);
    Whole<float> single(trial);
    EXPECT_NEAR(single.decoder.evaluate(trial.sequences, nullptr, nullptr),
                right, 2e-6 * right);
  }
}

TEST(Decoder, FollowsEveryNumberOfTheConfig) {
  DecoderConfig config = small_decoder();
  config.norm_epsilon = 0.2;
  config.rope_base = 7;
  const DecoderTrial trial(config);
  Whole<double> whole(trial);
  const double right = reference_loss(trial, trial.parameters);
  EXPECT_NEAR(whole.decoder.evaluate(trial.sequences, nullptr, nullptr), right,
              1e-12 * right);
}

class DecoderPrecision : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(QkNorm, DecoderPrecision, testing::Bool());

TEST_P(DecoderPrecision, SingleGradientsAreThoseOfDouble) {
  const DecoderTrial trial(GetParam() ? long_decoder()
                                      : without_qk_norm(long_decoder()));
  Whole<double> exact(trial);
  Whole<float> single(trial);
  exact.step(trial);
  single.step(trial);
  for (size_t t = 0; t < trial.parameters.size(); ++t) {
    double most = 0, worst = 0;
    for (size_t i = 0; i < exact.weights.gradients[t].size(); ++i) {
      const double right = exact.weights.gradients[t][i];
      const auto got = static_cast<double>(single.weights.gradients[t][i]);
      most = std::max(most, std::abs(right));
      worst = std::max(worst, std::abs(right - got));
    }
    EXPECT_LE(worst, 1e-5 * most) << trial.shapes.tensors[t].name;
  }
}

TEST(Decoder, RecomputedLayersGiveTheSameBits) {
  DecoderConfig config = long_decoder();
  config.architecture.experts = {.count = 4, .ffn = 6, .first_layer = 1};
  const DecoderTrial kept(config);
  config.recompute = Recompute::kLayer;
  const DecoderTrial again(config);
  Whole<float> a(kept);
  Whole<float> b(again);
  EXPECT_EQ(a.step(kept), b.step(again));
  EXPECT_EQ(a.weights.gradients, b.weights.gradients);
  EXPECT_LT(b.decoder.reserved(), a.decoder.reserved());
}

TEST(Decoder, AHeadInChunksGivesTheSameLoss) {
  DecoderConfig config = long_decoder();
  const DecoderTrial trial(config);
  config.head_chunk = 64;
  const DecoderTrial chunked(config);
  Whole<float> a(trial);
  Whole<float> b(chunked);
  EXPECT_NEAR(a.step(trial), b.step(chunked), 1e-6);
  EXPECT_LT(b.decoder.reserved(), a.decoder.reserved());
}

// Two micro-batches in flight, the first going back before the second.
TEST(Decoder, SlotsDoNotDisturbEachOther) {
  const DecoderTrial first(small_decoder(), 1);
  DecoderTrial second(small_decoder(), 1);
  std::ranges::reverse(second.sequences);
  Whole<float> turns(first);
  turns.step(first, false);
  turns.step(second, true);
  Whole<float> both(first, 2);
  both.decoder.forward(0, first.sequences, nullptr, nullptr);
  both.decoder.forward(1, second.sequences, nullptr, nullptr);
  both.decoder.backward(0, first.sequences, nullptr, nullptr, false);
  EXPECT_TRUE(both.weights.readies.empty());
  EXPECT_EQ(both.weights.parts.size(), first.shapes.tensors.size());
  both.decoder.backward(1, second.sequences, nullptr, nullptr, true);
  EXPECT_EQ(turns.weights.gradients, both.weights.gradients);
}

TEST(Decoder, SlotsAreUsedInTurn) {
  const DecoderTrial trial(small_decoder());
  Whole<float> whole(trial);
  Decoder<float>& decoder = whole.decoder;
  EXPECT_THROW(decoder.backward(0, trial.sequences, nullptr, nullptr, true),
               InternalError);
  decoder.forward(0, trial.sequences, nullptr, nullptr);
  EXPECT_THROW(decoder.forward(0, trial.sequences, nullptr, nullptr),
               InternalError);
  EXPECT_THROW(decoder.evaluate(trial.sequences, nullptr, nullptr),
               InternalError);
  EXPECT_THROW(decoder.forward(1, trial.sequences, nullptr, nullptr),
               InternalError);
}

TEST(Decoder, WaitsForModulesAndTellsTensorsInOrder) {
  DecoderConfig config = small_decoder();
  config.architecture.tied = false;
  const DecoderTrial trial(config);
  Whole<float> whole(trial);
  whole.step(trial);
  EXPECT_THAT(whole.weights.waits, ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
  EXPECT_EQ(whole.weights.releases, whole.weights.waits);
  std::vector<int32_t> modules;
  std::vector<int32_t> tensors = whole.weights.readies;
  for (const int32_t t : tensors) {
    const Tensor& tensor = trial.shapes.tensors[static_cast<size_t>(t)];
    modules.push_back(tensor.layer >= 0                 ? tensor.layer + 1
                      : tensor.role == Role::kEmbedding ? 0
                                                        : 3);
  }
  EXPECT_TRUE(std::ranges::is_sorted(modules, std::greater<>()));
  std::ranges::sort(tensors);
  EXPECT_EQ(tensors.size(), trial.shapes.tensors.size());
  EXPECT_EQ(std::ranges::adjacent_find(tensors), tensors.end());
}

// A tied tensor gets its last contribution from the embedding.
TEST(Decoder, ATiedHeadIsReadyWithTheEmbedding) {
  const DecoderTrial trial(small_decoder());
  Whole<float> whole(trial);
  whole.step(trial);
  EXPECT_EQ(whole.weights.readies.back(), 0);
  EXPECT_EQ(std::ranges::count(whole.weights.readies, 0), 1);
}

TEST(Decoder, RefusesTokensOutsideTheVocabulary) {
  DecoderTrial trial(small_decoder());
  Whole<float> whole(trial);
  trial.sequences[3] = 14;
  EXPECT_THROW(whole.decoder.evaluate(trial.sequences, nullptr, nullptr),
               InternalError);
}

// Compares two stages with all layers in one.
TEST(Decoder, StagesGiveTheBitsOfTheWhole) {
  DecoderConfig config = small_decoder();
  config.architecture.tied = false;
  const DecoderTrial trial(config);
  Whole<float> whole(trial);
  const double right = whole.step(trial);
  const Parallel front{.num_layers = 1, .has_head = false};
  const Parallel rear{
      .first_layer = 1, .num_layers = 1, .has_embedding = false};
  const auto engine = make_cpu_engine();
  TrialWeights<float> weights(trial, front);
  Decoder<float> first(config, trial.shapes, front, *engine, weights);
  Decoder<float> second(config, trial.shapes, rear, *engine, weights);
  std::vector<float> stream(
      static_cast<size_t>(config.tokens() * config.architecture.hidden));
  EXPECT_EQ(first.forward(0, trial.sequences, nullptr, stream.data()), 0);
  EXPECT_EQ(second.forward(0, trial.sequences, stream.data(), nullptr), right);
  second.backward(0, trial.sequences, nullptr, stream.data(), true);
  first.backward(0, trial.sequences, stream.data(), nullptr, true);
  EXPECT_EQ(weights.gradients, whole.weights.gradients);
  EXPECT_EQ(weights.readies, whole.weights.readies);
}

}  // namespace
}  // namespace canzona::model::decoder_test
