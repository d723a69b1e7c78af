// Tests of what a decoder requires and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "canzona/base/error.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::decoder_limits_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DecoderMemory, IsPredicted) {
  DecoderConfig config = small_decoder();
  for (const int64_t in_flight : {1, 3}) {
    const DecoderTrial trial(config);
    Whole<float> whole(trial, in_flight);
    EXPECT_EQ(whole.decoder.reserved(),
              decoder_memory<float>(config, whole_model(config), in_flight));
    config.recompute = Recompute::kLayer;
  }
}

TEST(DecoderMemory, GrowsWithWhatIsInFlight) {
  const DecoderConfig config = small_decoder();
  const Parallel whole = whole_model(config);
  const int64_t one = decoder_memory<float>(config, whole, 1);
  const int64_t two = decoder_memory<float>(config, whole, 2);
  EXPECT_EQ(decoder_memory<float>(config, whole, 3) - two, two - one);
  EXPECT_GT(two, one);
  EXPECT_THROW(decoder_memory<float>(config, whole, 0), UsageError);
}

TEST(DecoderMemory, ShrinksWithRanksThatAreNotThereYet) {
  const DecoderConfig config = small_decoder();
  Parallel half = whole_model(config);
  half.planned_tp = 2;
  EXPECT_LT(decoder_memory<float>(config, half, 1),
            decoder_memory<float>(config, whole_model(config), 1));
}

// Without these norms there is no memory for sums of their gradients over
// ranks.
TEST(DecoderMemory, ShrinksWithoutNormsOfQueriesAndKeys) {
  DecoderConfig config = small_decoder();
  Parallel half = whole_model(config);
  half.planned_tp = 2;
  const int64_t normed = decoder_memory<float>(config, half, 1);
  config.architecture.qk_norm = false;
  constexpr int64_t kBorder = 128;
  EXPECT_EQ(normed - decoder_memory<float>(config, half, 1), kBorder);
  const DecoderTrial trial(config);
  Whole<float> whole(trial);
  EXPECT_EQ(whole.decoder.reserved(),
            decoder_memory<float>(config, whole_model(config), 1));
}

TEST(DecoderMemory, IsRefusedWhereItCannotBeCounted) {
  DecoderConfig config = small_decoder();
  config.length = config.micro_batch = int64_t{1} << 20;
  EXPECT_GT(decoder_memory<float>(config, whole_model(config), 1),
            int64_t{1} << 40);
  config.architecture.ffn = int64_t{1} << 40;
  EXPECT_THROW(decoder_memory<float>(config, whole_model(config), 1),
               UsageError);
}

template <class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DecoderCuts, RefuseWhatTpDoesNotDivide) {
  DecoderConfig config = small_decoder();
  Parallel cut = whole_model(config);
  cut.planned_tp = 4;
  EXPECT_THAT(message_of([&] { decoder_sizes(config, cut); }),
              AllOf(HasSubstr("tp=4"), HasSubstr("4 query heads"),
                    HasSubstr("2 key/value heads")));
  cut.planned_tp = 2;
  config.architecture.ffn = 9;
  EXPECT_THAT(message_of([&] { decoder_sizes(config, cut); }),
              HasSubstr("9 rows of gate and up"));
  config.architecture.ffn = 10;
  config.architecture.vocab = 15;
  EXPECT_THAT(message_of([&] { decoder_sizes(config, cut); }),
              HasSubstr("15 tokens of the vocabulary"));
}

struct Refusal {
  const char* name;
  void (*set)(DecoderConfig&);
  const char* message;
};

TEST(DecoderConfigs, RefuseWhatTheDecoderHasNot) {
  const Refusal refusals[] = {
      {"latent", [](DecoderConfig& c) { c.architecture.latent.kv_rank = 4; },
       "latent attention"},
      {"bias", [](DecoderConfig& c) { c.architecture.mlp_bias = true; },
       "biases"},
      {"norm", [](DecoderConfig& c) { c.architecture.wide_qk_norm = true; },
       "norms of queries and keys must be per head"},
      {"odd", [](DecoderConfig& c) { c.architecture.head_dim = 5; },
       "head_dim must be even, since rotary angles rotate pairs, got 5"},
      {"length", [](DecoderConfig& c) { c.length = 0; }, "length"},
      {"batch", [](DecoderConfig& c) { c.micro_batch = 0; }, "micro_batch"},
      {"long", [](DecoderConfig& c) { c.length = int64_t{1} << 25; },
       "length must be from 1 to 16777216, got 33554432"},
      {"epsilon", [](DecoderConfig& c) { c.norm_epsilon = 0; }, "norm_epsilon"},
      {"base", [](DecoderConfig& c) { c.rope_base = -1; }, "rope_base"},
      {"chunk", [](DecoderConfig& c) { c.head_chunk = -1; }, "head_chunk"},
      {"experts",
       [](DecoderConfig& c) {
         c.architecture.experts.count = 2;
         c.experts_per_token = 3;
       },
       "experts_per_token must be from 1 to 2, got 3"}};
  for (const Refusal& refusal : refusals) {
    DecoderConfig config = small_decoder();
    EXPECT_NO_THROW(check_decoder(config, "toy"));
    refusal.set(config);
    EXPECT_THAT(message_of([&] { check_decoder(config, "toy"); }),
                AllOf(HasSubstr("'toy'"), HasSubstr(refusal.message)))
        << refusal.name;
  }
}

}  // namespace
}  // namespace canzona::model::decoder_limits_test
