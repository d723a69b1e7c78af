#include "canzona/model/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "canzona/base/random.h"

namespace canzona::model::attention_test {
namespace {

std::vector<double> numbers(uint64_t seed, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(normal_at(seed, static_cast<uint64_t>(i)));
  return values;
}

template <class Real>
struct Trial {
  Trial(int64_t length, int64_t heads, int64_t kv_heads, int64_t dim) {
    config.architecture = {.layers = 1,
                           .hidden = 4,
                           .ffn = 2,
                           .vocab = 2,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = dim,
                           .qk_norm = true};
    config.length = length;
    config.micro_batch = 2;
    sizes = decoder_sizes(config, {.num_layers = 1});
    Cutter count(nullptr);
    AttentionSpace<Real>::take(sizes, count);
    memory.resize(static_cast<size_t>(count.bytes() + 128));
    void* begin = memory.data();
    size_t room = memory.size();
    Cutter cutter(static_cast<std::byte*>(std::align(128, 128, begin, room)));
    attention = std::make_unique<Attention<Real>>(
        config, sizes, *engine, AttentionSpace<Real>::take(sizes, cutter));
    out.resize(static_cast<size_t>(sizes.tokens() * sizes.width()));
    log_sums.resize(static_cast<size_t>(sizes.tokens() * sizes.heads()));
    for (const double v : numbers(8, 2 * dim))
      norms.push_back(static_cast<Real>(1 + 0.5 * v));
  }

  HeadNorms<Real> weights() const {
    return {norms.data(), norms.data() + sizes.head_dim};
  }
  void forward(std::vector<Real> qkv) {
    largest.resize(static_cast<size_t>(sizes.heads()), Real{-1e30});
    attention->forward(qkv.data(), weights(), out.data(), log_sums.data(),
                       largest.data());
  }

  DecoderConfig config;
  DecoderSizes sizes;
  std::unique_ptr<Engine> engine = make_cpu_engine();
  std::vector<std::byte> memory;
  std::unique_ptr<Attention<Real>> attention;
  std::vector<Real> out, log_sums, norms, largest;
};

// One normed and rotated head of a row.
std::vector<double> turned(const double* raw, const double* weight, int64_t dim,
                           int64_t t, const DecoderConfig& config) {
  double mean = 0;
  for (int64_t i = 0; i < dim; ++i)
    mean += raw[i] * raw[i] / static_cast<double>(dim);
  const double r = 1 / std::sqrt(mean + config.norm_epsilon);
  std::vector<double> result(static_cast<size_t>(dim));
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double angle =
        static_cast<double>(t) /
        std::pow(config.rope_base,
                 2 * static_cast<double>(i) / static_cast<double>(dim));
    const int64_t j = i + dim / 2;
    const double a = raw[i] * r * weight[i], b = raw[j] * r * weight[j];
    result[static_cast<size_t>(i)] = a * std::cos(angle) - b * std::sin(angle);
    result[static_cast<size_t>(j)] = b * std::cos(angle) + a * std::sin(angle);
  }
  return result;
}

// `largest`, by head, becomes the largest logit.
std::vector<double> plain(const Trial<double>& trial,
                          const std::vector<double>& qkv,
                          std::vector<double>* largest = nullptr) {
  const DecoderSizes& s = trial.sizes;
  const int64_t dim = s.head_dim;
  std::vector<double> out;
  for (int64_t row = 0; row < s.tokens(); ++row) {
    const int64_t first = row / s.length * s.length;
    for (int64_t head = 0; head < s.heads(); ++head) {
      const int64_t group = head / s.per_group * s.group();
      const auto at = [&](int64_t token, int64_t slot) {
        return qkv.data() + token * s.qkv() + group + slot * dim;
      };
      const auto query = turned(at(row, head % s.per_group), trial.norms.data(),
                                dim, row - first, trial.config);
      std::vector<double> scores;
      for (int64_t token = first; token <= row; ++token) {
        const auto key =
            turned(at(token, s.per_group), trial.norms.data() + dim, dim,
                   token - first, trial.config);
        scores.push_back(
            std::inner_product(query.begin(), query.end(), key.begin(), 0.0) /
            std::sqrt(static_cast<double>(dim)));
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      if (largest != nullptr) {
        largest->resize(static_cast<size_t>(s.heads()), -1e30);
        double& of_head = (*largest)[static_cast<size_t>(head)];
        of_head = std::max(of_head, most);
      }
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - most);
      for (int64_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (int64_t token = first; token <= row; ++token)
          sum += scores[static_cast<size_t>(token - first)] / total *
                 at(token, s.per_group + 1)[i];
        out.push_back(sum);
      }
    }
  }
  return out;
}

class AttentionTest : public testing::TestWithParam<int64_t> {};

TEST_P(AttentionTest, IsThatOfPlainLoops) {
  Trial<double> trial(GetParam(), 6, 2, 10);
  const auto qkv = numbers(1, trial.sizes.tokens() * trial.sizes.qkv());
  trial.forward(qkv);
  Trial<float> single(GetParam(), 6, 2, 10);
  single.forward(std::vector<float>(qkv.begin(), qkv.end()));
  const std::vector<double> right = plain(trial, qkv);
  ASSERT_EQ(right.size(), trial.out.size());
  for (size_t i = 0; i < right.size(); ++i) {
    ASSERT_NEAR(trial.out[i], right[i], 1e-13) << i;
    ASSERT_NEAR(static_cast<double>(single.out[i]), right[i], 4e-6) << i;
  }
}

TEST_P(AttentionTest, NotesTheLargestLogitOfEveryHead) {
  Trial<double> trial(GetParam(), 6, 2, 10);
  std::vector<double> largest;
  for (const int seed : {1, 5}) {  // over all calls
    const auto qkv = numbers(seed, trial.sizes.tokens() * trial.sizes.qkv());
    trial.forward(qkv);
    plain(trial, qkv, &largest);
  }
  ASSERT_EQ(largest.size(), 6U);
  for (size_t head = 0; head < largest.size(); ++head)
    EXPECT_NEAR(trial.largest[head], largest[head], 1e-13) << head;
  auto qkv = numbers(5, trial.sizes.tokens() * trial.sizes.qkv());
  qkv[0] = std::nan("");
  trial.forward(qkv);
  trial.forward(numbers(1, trial.sizes.tokens() * trial.sizes.qkv()));
  EXPECT_TRUE(std::isnan(trial.largest[0]));
  EXPECT_FALSE(std::isnan(trial.largest[5]));
}

// With scores in the thousands, one key takes everything, and nothing
// overflows.
TEST_P(AttentionTest, TakesLargeScores) {
  Trial<double> trial(GetParam(), 2, 1, 4);
  Trial<float> single(GetParam(), 2, 1, 4);
  for (double& weight : trial.norms) weight *= 60;
  for (float& weight : single.norms) weight *= 60;
  const auto qkv = numbers(2, trial.sizes.tokens() * trial.sizes.qkv());
  trial.forward(qkv);
  single.forward(std::vector<float>(qkv.begin(), qkv.end()));
  const std::vector<double> right = plain(trial, qkv);
  for (size_t i = 0; i < right.size(); ++i) {
    ASSERT_NEAR(trial.out[i], right[i], 1e-9) << i;
    ASSERT_TRUE(std::isfinite(single.out[i])) << i;
  }
}

// The slope of Σ out·gradient along a direction of qkv and of the norms.
TEST_P(AttentionTest, BackwardIsTheSlope) {
  Trial<double> trial(GetParam(), 4, 2, 6);
  const int64_t count = trial.sizes.tokens() * trial.sizes.qkv();
  const auto qkv = numbers(3, count), along = numbers(4, count);
  const auto gradient = numbers(5, trial.sizes.tokens() * trial.sizes.width());
  const auto norms = trial.norms, along_norms = numbers(6, 12);
  const auto value = [&](double by) {
    std::vector<double> moved = qkv;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += by * along[i];
    for (size_t i = 0; i < norms.size(); ++i)
      trial.norms[i] = norms[i] + by * along_norms[i];
    trial.forward(moved);
    return std::inner_product(trial.out.begin(), trial.out.end(),
                              gradient.begin(), 0.0);
  };
  const double step = 1e-4;
  const double right = (8 * (value(step) - value(-step)) -
                        (value(2 * step) - value(-2 * step))) /
                       (12 * step);
  value(0);
  std::vector<double> changed = qkv, norm_gradients(12);
  trial.attention->backward(
      changed.data(), trial.weights(),
      {trial.out.data(), trial.log_sums.data(), gradient.data()},
      {norm_gradients.data(), norm_gradients.data() + 6});
  double slope =
      std::inner_product(changed.begin(), changed.end(), along.begin(), 0.0);
  slope += std::inner_product(norm_gradients.begin(), norm_gradients.end(),
                              along_norms.begin(), 0.0);
  EXPECT_NEAR(slope, right, 1e-7 * (1 + std::abs(right)));
}

INSTANTIATE_TEST_SUITE_P(Lengths, AttentionTest,
                         testing::Values(1, 2, 63, 64, 65, 128, 129, 200));

}  // namespace
}  // namespace canzona::model::attention_test
