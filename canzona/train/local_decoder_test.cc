#include "canzona/train/model_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/train/train_rank.h"

namespace canzona::train {
namespace {

DecoderConfig local_config(int64_t experts = 0) {
  DecoderConfig config;
  config.architecture = {.layers = 2,
                         .hidden = 16,
                         .ffn = 24,
                         .vocab = 20,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .qk_norm = true};
  if (experts > 0) config.architecture.experts = {.count = experts, .ffn = 12};
  config.length = 7;
  config.micro_batch = 3;
  return config;
}

LocalDecoder local_decoder(const DecoderConfig& config) {
  const Model shapes = decoder_shapes(config, "local");
  return LocalDecoder(config, "local",
                      [&](const Tensor& tensor, std::span<float> whole) {
                        make_initial(shapes, tensor, 3, 1, 0, whole);
                      });
}

std::vector<int32_t> local_sequences(const DecoderConfig& config) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < config.micro_batch * (config.length + 1); ++i)
    all.push_back(
        static_cast<int32_t>((i * 7 + i * i) % config.architecture.vocab));
  return all;
}

std::vector<int32_t> without_targets(const std::vector<int32_t>& sequences,
                                     int64_t length) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (static_cast<int64_t>(i) % (length + 1) != length)
      tokens.push_back(sequences[i]);
  return tokens;
}

std::vector<float> all_logits(LocalDecoder& model,
                              const std::vector<int32_t>& tokens) {
  std::vector<float> all;
  model.logits(tokens, [&](int64_t first, std::span<const float> rows) {
    EXPECT_EQ(std::ssize(all), first * model.config().architecture.vocab);
    all.insert(all.end(), rows.begin(), rows.end());
  });
  return all;
}

// The mean of -log softmax(logits)[target], in fp64.
double loss_of(const std::vector<float>& logits,
               const std::vector<int32_t>& sequences, int64_t length,
               int64_t vocab) {
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < std::ssize(sequences); ++i) {
    if (i % (length + 1) == length) continue;
    const float* row = logits.data() + tokens++ * vocab;
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v)
      total += std::exp(static_cast<double>(row[v]));
    sum += std::log(total) -
           static_cast<double>(row[sequences[static_cast<size_t>(i + 1)]]);
  }
  return sum / static_cast<double>(tokens);
}

class LocalDecoderTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(LocalDecoderTest, LogitsGiveTheLossOfTraining) {
  DecoderConfig config = local_config(GetParam());
  const std::vector<int32_t> sequences = local_sequences(config);
  const std::vector<int32_t> tokens = without_targets(sequences, config.length);
  for (const int64_t chunk : {0, 4}) {
    config.head_chunk = chunk;
    LocalDecoder model = local_decoder(config);
    const std::vector<float> logits = all_logits(model, tokens);
    ASSERT_EQ(std::ssize(logits), config.tokens() * config.architecture.vocab);
    EXPECT_NEAR(
        loss_of(logits, sequences, config.length, config.architecture.vocab),
        model.loss(sequences), 1e-5)
        << "chunk " << chunk;
  }
}

TEST_P(LocalDecoderTest, LaterTokensChangeNoLogitsOfEarlierOnes) {
  const DecoderConfig config = local_config(GetParam());
  LocalDecoder model = local_decoder(config);
  std::vector<int32_t> tokens =
      without_targets(local_sequences(config), config.length);
  const std::vector<float> before = all_logits(model, tokens);
  for (int64_t i = 4; i < config.length; ++i)
    tokens[static_cast<size_t>(i)] = 0;
  const std::vector<float> after = all_logits(model, tokens);
  const auto row = static_cast<size_t>(config.architecture.vocab);
  for (size_t i = 0; i < 4 * row; ++i) EXPECT_EQ(before[i], after[i]);
  EXPECT_NE(before[6 * row], after[6 * row]);
}

INSTANTIATE_TEST_SUITE_P(DenseAndExperts, LocalDecoderTest,
                         ::testing::Values(0, 4));

TEST(LocalDecoderLimits, NamesATokenThatIsNotInTheVocabulary) {
  const DecoderConfig config = local_config();
  LocalDecoder model = local_decoder(config);
  std::vector<int32_t> tokens(static_cast<size_t>(config.tokens()));
  tokens[5] = 20;
  try {
    model.logits(tokens, [](int64_t, std::span<const float>) {});
    FAIL() << "token 20 of 20 was taken";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "model 'local': token 20 is not in the vocabulary of 20");
  }
}

}  // namespace
}  // namespace canzona::train
