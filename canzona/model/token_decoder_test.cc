#include "canzona/model/token_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "canzona/model/test_decoder.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::token_decoder_test {
namespace {

// One sequence, long enough for several blocks of keys and of queries.
DecoderConfig long_sequence() {
  DecoderConfig config = small_decoder();
  config.length = 200;
  config.micro_batch = 1;
  return config;
}

// Returns logits by token, from a decoder of the whole sequence.
template <class Real>
std::vector<std::vector<Real>> whole_logits(const DecoderTrial& trial) {
  Whole<Real> whole(trial);
  std::vector<std::vector<Real>> rows;
  const int64_t vocab = trial.config.architecture.vocab;
  whole.decoder.logits(
      trial.sequences, [&](int64_t, std::span<const Real> some) {
        for (auto at = some.begin(); at != some.end(); at += vocab)
          rows.emplace_back(at, at + vocab);
      });
  return rows;
}

template <class Real>
double difference(std::span<const Real> found, const std::vector<Real>& right) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - right[i]));
    largest = std::max(largest, std::abs(static_cast<double>(right[i])));
  }
  return worst / largest;
}

template <class Real>
struct Reading {
  explicit Reading(const DecoderTrial& trial, int64_t capacity)
      : weights(trial, whole_model(trial.config)),
        model(trial.config, trial.shapes, *engine, weights, capacity) {}

  std::unique_ptr<Engine> engine = make_cpu_engine();
  TrialWeights<Real> weights;
  TokenDecoder<Real> model;
};

// Sums of up to some hundred products, in another order.
template <class Real>
constexpr double kBound = sizeof(Real) == 4 ? 1e-5 : 1e-13;

template <class Real>
void expect_same_logits(const DecoderConfig& config) {
  const DecoderTrial trial(config);
  const auto right = whole_logits<Real>(trial);
  const std::span<const int32_t> tokens(trial.sequences);
  Reading<Real> reading(trial, config.length);
  for (size_t t = 0; t < right.size(); ++t)
    ASSERT_LE(difference(reading.model.read(tokens.subspan(t, 1)), right[t]),
              kBound<Real>)
        << "token " << t;
}

TEST(TokenDecoder, HasTheLogitsOfTheWholeSequence) {
  expect_same_logits<float>(long_sequence());
  expect_same_logits<double>(long_sequence());
}

TEST(TokenDecoder, DoesWithoutNormsTiesAndDenseLayers) {
  DecoderConfig config = long_sequence();
  config.length = 70;
  config.architecture.qk_norm = false;
  config.architecture.tied = false;
  expect_same_logits<float>(config);
  config.architecture.experts = {.count = 4, .ffn = 8, .shared = 1};
  expect_same_logits<double>(config);
}

// However the tokens are divided among calls.
TEST(TokenDecoder, ReadsPromptsOfAnyLengthAtOnce) {
  const DecoderTrial trial(long_sequence());
  const auto right = whole_logits<double>(trial);
  const std::span<const int32_t> tokens(trial.sequences);
  Reading<double> reading(trial, 200);
  for (const size_t prompt : {1, 2, 63, 64, 65, 66, 128, 129, 130, 199, 200})
    for (const size_t then : {1, 5, 64, 100}) {
      reading.model.restart();
      EXPECT_LE(difference(reading.model.read(tokens.first(prompt)),
                           right[prompt - 1]),
                kBound<double>)
          << prompt;
      if (prompt + then > right.size()) continue;
      EXPECT_LE(difference(reading.model.read(tokens.subspan(prompt, then)),
                           right[prompt + then - 1]),
                kBound<double>)
          << prompt << " and " << then;
      EXPECT_EQ(reading.model.count(), static_cast<int64_t>(prompt + then));
    }
}

// Tokens read before a restart do not count after it.
TEST(TokenDecoder, TheSameTokensGiveTheSameBits) {
  const DecoderTrial trial(long_sequence());
  const std::span<const int32_t> tokens(trial.sequences);
  Reading<float> reading(trial, 200);
  const auto logits_of = [&](std::span<const int32_t> prompt) {
    reading.model.restart();
    const auto row = reading.model.read(prompt);
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> first = logits_of(tokens.first(150));
  logits_of(tokens.subspan(3, 190));
  EXPECT_EQ(logits_of(tokens.first(150)), first);
}

}  // namespace
}  // namespace canzona::model::token_decoder_test
