// Compares decoders cut over ranks with the uncut one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "canzona/base/error.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::decoder_parallel_test {
namespace {

DecoderConfig cut_decoder(bool tied) {
  DecoderConfig config = small_decoder();
  config.architecture.heads = 8;
  config.architecture.kv_heads = 4;
  config.architecture.ffn = 12;
  config.architecture.vocab = 16;
  config.architecture.tied = tied;
  config.length = 70;
  config.head_chunk = tied ? 0 : 32;
  config.recompute = tied ? Recompute::kLayer : Recompute::kOff;
  return config;
}

// The tensors of all ranks of a group after two micro-batches, combined.
struct Gathered {
  std::vector<double> losses;
  std::vector<std::vector<std::vector<float>>> gradients;  // by rank, tensor
};

template <class Real>
double two_batches(Decoder<Real>& decoder, const DecoderTrial& trial) {
  double sum = 0;
  for (const bool last : {false, true}) {
    sum += decoder.forward(0, trial.sequences, nullptr, nullptr);
    decoder.backward(0, trial.sequences, nullptr, nullptr, last);
  }
  return sum / 2;
}

Gathered run_tp(const DecoderTrial& trial, int tp) {
  Gathered all{
      std::vector<double>(static_cast<size_t>(tp)),
      std::vector<std::vector<std::vector<float>>>(static_cast<size_t>(tp))};
  run_ranks(tp, [&](Communicator& world) {
    Parallel parallel = whole_model(trial.config);
    parallel.tp = &world;
    const auto engine = make_cpu_engine();
    TrialWeights<float> weights(trial, parallel);
    Decoder<float> decoder(trial.config, trial.shapes, parallel, *engine,
                           weights);
    const auto rank = static_cast<size_t>(world.rank());
    all.losses[rank] = two_batches(decoder, trial);
    all.gradients[rank] = weights.gradients;
    EXPECT_GT(decoder.comm_seconds(), 0);
    EXPECT_EQ(decoder.reserved(),
              decoder_memory<float>(trial.config, parallel, 1));
  });
  return all;
}

// The error, relative to the largest number of the tensor.
double worst_error(const DecoderTrial& trial, size_t t, const Gathered& all,
                   const std::vector<float>& right) {
  const auto tp = static_cast<int>(all.losses.size());
  double most = 0, worst = 0;
  for (int rank = 0; rank < tp; ++rank) {
    const auto& shard = all.gradients[static_cast<size_t>(rank)][t];
    for (size_t i = 0; i < shard.size(); ++i) {
      const int64_t place = place_in_whole(trial.shapes.tensors[t], tp, rank,
                                           static_cast<int64_t>(i));
      const auto want = static_cast<double>(right[static_cast<size_t>(place)]);
      most = std::max(most, std::abs(want));
      worst = std::max(worst, std::abs(want - static_cast<double>(shard[i])));
    }
  }
  EXPECT_GT(most, 0);
  return worst / most;
}

class TensorParallel
    : public testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(TensorParallel, GivesTheWholesLossAndGradients) {
  const auto [tp, tied, qk_norm] = GetParam();
  DecoderConfig config = cut_decoder(tied);
  config.architecture.qk_norm = qk_norm;
  const DecoderTrial trial(config);
  Whole<float> whole(trial);
  const double right = two_batches(whole.decoder, trial);
  const Gathered all = run_tp(trial, tp);
  for (const double loss : all.losses) {
    EXPECT_NEAR(loss, right, 1e-6 * right);
    EXPECT_EQ(loss, all.losses[0]);
  }
  for (size_t t = 0; t < trial.shapes.tensors.size(); ++t) {
    const Tensor& tensor = trial.shapes.tensors[t];
    EXPECT_LE(worst_error(trial, t, all, whole.weights.gradients[t]), 1e-5)
        << tensor.name;
    if (tensor.cut != Cut::kNone) continue;
    for (const auto& gradients : all.gradients)
      EXPECT_EQ(gradients[t], all.gradients[0][t]) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Bool(), testing::Bool()));

// The sums of query and key norms start from zero in every step.
TEST(TensorParallel, StepsDoNotMixTheirGradients) {
  const DecoderTrial trial(cut_decoder(true));
  run_ranks(2, [&](Communicator& world) {
    Parallel parallel = whole_model(trial.config);
    parallel.tp = &world;
    const auto engine = make_cpu_engine();
    TrialWeights<float> weights(trial, parallel);
    Decoder<float> decoder(trial.config, trial.shapes, parallel, *engine,
                           weights);
    two_batches(decoder, trial);
    const auto first = weights.gradients;
    for (auto& gradient : weights.gradients) std::ranges::fill(gradient, 0.0F);
    two_batches(decoder, trial);
    EXPECT_EQ(weights.gradients, first);
  });
}

TEST(TensorParallel, RefusesDouble) {
  const DecoderTrial trial(cut_decoder(true));
  run_ranks(2, [&](Communicator& world) {
    Parallel parallel = whole_model(trial.config);
    parallel.tp = &world;
    const auto engine = make_cpu_engine();
    TrialWeights<double> weights(trial, parallel);
    EXPECT_THROW(
        Decoder<double>(trial.config, trial.shapes, parallel, *engine, weights),
        UsageError);
  });
}

// Each rank has one of the two sequences and half of the experts. The gradients
// of the whole model are means over sequences: dense ones are the mean of the
// ranks' own, an expert's is half of what its rank has summed.
TEST(ExpertParallel, GivesTheWholesLossAndGradients) {
  DecoderConfig config = small_decoder();
  config.architecture.experts = {.count = 4, .ffn = 6};
  const DecoderTrial trial(config);
  Whole<float> whole(trial);
  const double right = whole.step(trial);
  config.micro_batch = 1;
  DecoderTrial half(config);
  half.parameters = trial.parameters;
  std::mutex mutex;
  double loss = 0;
  std::vector<std::vector<double>> sums(trial.parameters.size());
  run_ranks(2, [&](Communicator& world) {
    Parallel parallel = whole_model(config);
    parallel.ep = &world;
    const auto engine = make_cpu_engine();
    TrialWeights<float> weights(half, parallel);
    Decoder<float> decoder(config, half.shapes, parallel, *engine, weights);
    const auto mine =
        std::span(trial.sequences)
            .subspan(static_cast<size_t>(world.rank() * (config.length + 1)),
                     static_cast<size_t>(config.length + 1));
    const double own = decoder.forward(0, mine, nullptr, nullptr);
    decoder.backward(0, mine, nullptr, nullptr, true);
    const std::lock_guard lock(mutex);
    loss += own / 2;
    for (size_t t = 0; t < sums.size(); ++t) {
      sums[t].resize(weights.gradients[t].size());
      for (size_t i = 0; i < sums[t].size(); ++i)
        sums[t][i] += static_cast<double>(weights.gradients[t][i]) / 2;
    }
  });
  EXPECT_NEAR(loss, right, 1e-6 * right);
  for (size_t t = 0; t < sums.size(); ++t) {
    double most = 0, worst = 0;
    for (size_t i = 0; i < sums[t].size(); ++i) {
      const auto want = static_cast<double>(whole.weights.gradients[t][i]);
      most = std::max(most, std::abs(want));
      worst = std::max(worst, std::abs(want - sums[t][i]));
    }
    EXPECT_LE(worst, 1e-5 * most) << trial.shapes.tensors[t].name;
  }
}

}  // namespace
}  // namespace canzona::model::decoder_parallel_test
