// The GPU's decoder beside the CPU's in fp32, on the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "canzona/linalg/cuda/test_cuda_calls.h"
#include "canzona/linalg/cuda/test_support.h"
#include "canzona/model/cuda/cuda_decoder.h"
#include "canzona/model/cuda/test_device_weights.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::cuda_decoder_test {
namespace {

DecoderConfig device_config() {
  DecoderConfig config = small_decoder();
  config.architecture.hidden = 48;
  config.architecture.ffn = 40;
  config.architecture.head_dim = 16;
  config.architecture.vocab = 257;
  config.length = 37;
  config.micro_batch = 3;
  config.plain_attention = true;
  return config;
}

// cuDNN's heads.
DecoderConfig wide_config() {
  DecoderConfig config = device_config();
  config.architecture.hidden = 192;
  config.architecture.ffn = 256;
  config.architecture.head_dim = 64;
  return config;
}

struct Outcome {
  double loss = 0;
  std::vector<std::vector<float>> gradients;
  bool operator==(const Outcome&) const = default;
};

template <class T>
Outcome on_gpu(CudaEngine& engine, const DecoderTrial& trial, int steps = 1) {
  DeviceTrialWeights<T> weights(engine, trial);
  gpu::CudaDecoder<T> decoder(trial.config, trial.shapes, engine, weights, 1,
                              1);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    weights.zero_gradients();
    const Pass<float> pass{0, trial.sequences};
    decoder.forward({&pass, 1}, {&outcome.loss, 1});
    decoder.backward({&pass, 1}, true);
    decoder.finish_losses();
  }
  for (size_t t = 0; t < trial.parameters.size(); ++t) {
    outcome.gradients.push_back(weights.got(t));
    EXPECT_EQ(weights.announced[t], 1) << trial.shapes.tensors[t].name;
  }
  EXPECT_EQ(weights.waits.size(), weights.releases.size());
  return outcome;
}

// Returns |got - right| / |right|, and tells where they differ most.
double relative_error(const std::vector<float>& got,
                      const std::vector<float>& right, const std::string& name,
                      double limit) {
  double difference = 0, whole = 0, most = -1;
  size_t at = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    const auto expected = static_cast<double>(right[i]);
    const double d = std::abs(static_cast<double>(got[i]) - expected);
    difference += d * d;
    whole += expected * expected;
    if (!(d <= most)) most = d, at = i;
  }
  const double error = std::sqrt(difference / std::max(whole, 1e-60));
  if (!(error <= limit))
    ADD_FAILURE() << name << ": relative error " << error << ", most at " << at
                  << " of " << right.size() << ": got " << got[at]
                  << ", expected " << right[at];
  return error;
}

void expect_close(const Outcome& got, const DecoderTrial& trial, double limit,
                  const std::string& what) {
  Whole<float> whole(trial);
  const double loss = whole.step(trial);
  EXPECT_NEAR(got.loss, loss, limit * loss) << what;
  double most = 0;
  for (size_t t = 0; t < got.gradients.size(); ++t)
    most = std::max(
        most, relative_error(got.gradients[t], whole.weights.gradients[t],
                             what + " " + trial.shapes.tensors[t].name, limit));
  std::printf("[ %s: loss %.8f, right %.8f, gradients within %.2e ]\n",
              what.c_str(), got.loss, loss, most);
}

class CudaDecoderTest : public GpuTest {};

struct Option {
  std::string name;
  std::function<void(DecoderConfig&)> set;
};

std::vector<Option> options() {
  return {
      {"tied", [](DecoderConfig&) {}},
      {"untied", [](DecoderConfig& c) { c.architecture.tied = false; }},
      {"no_qk_norm", [](DecoderConfig& c) { c.architecture.qk_norm = false; }},
      {"one_token", [](DecoderConfig& c) { c.length = c.micro_batch = 1; }},
      {"one_sequence", [](DecoderConfig& c) { c.micro_batch = 1; }},
      {"head_in_chunks", [](DecoderConfig& c) { c.head_chunk = 13; }},
      {"a_group_for_each_head",
       [](DecoderConfig& c) { c.architecture.kv_heads = 4; }},
      {"one_group", [](DecoderConfig& c) { c.architecture.kv_heads = 1; }},
      {"head_dim_80", [](DecoderConfig& c) { c.architecture.head_dim = 80; }},
      {"head_dim_128", [](DecoderConfig& c) { c.architecture.head_dim = 128; }},
      {"head_dim_256", [](DecoderConfig& c) { c.architecture.head_dim = 256; }},
      {"hidden_2056",
       [](DecoderConfig& c) {
         c.architecture.hidden = 2056;
         c.architecture.layers = 1;
       }},
      {"longer",
       [](DecoderConfig& c) {
         c.length = 331;
         c.micro_batch = 2;
       }},
      {"recomputed_mlp",
       [](DecoderConfig& c) { c.recompute = Recompute::kMlp; }},
      {"recomputed_layers",
       [](DecoderConfig& c) { c.recompute = Recompute::kLayer; }}};
}

TEST_F(CudaDecoderTest, InFp32AgreesWithTheCpu) {
  for (const Option& option : options()) {
    DecoderConfig config = device_config();
    option.set(config);
    const DecoderTrial trial(config);
    expect_close(on_gpu<float>(gpu(), trial), trial, 1e-5,
                 "fp32 " + option.name);
  }
}

// bf16 has eight bits: each rounding leaves a relative error of up to 2⁻⁹, and
// some dozen of them lie between a weight and the loss.
TEST_F(CudaDecoderTest, InBf16AgreesWithTheCpuOnTheSameWeights) {
  for (const Option& option : options()) {
    DecoderConfig config = device_config();
    option.set(config);
    DecoderTrial trial(config);
    round_parameters(trial);
    expect_close(on_gpu<uint16_t>(gpu(), trial), trial, 0.03,
                 "bf16 " + option.name);
  }
}

TEST_F(CudaDecoderTest, CudnnAgreesWithTheCpu) {
  for (const int64_t head_dim : {64, 128})
    for (const int64_t kv_heads : {1, 2, 4})
      for (const int64_t length : {2, 37, 200}) {
        DecoderConfig config = wide_config();
        config.architecture.head_dim = head_dim;
        config.architecture.kv_heads = kv_heads;
        config.length = length;
        config.plain_attention = false;
        DecoderTrial trial(config);
        round_parameters(trial);
        expect_close(on_gpu<uint16_t>(gpu(), trial), trial, 0.03,
                     cat("cudnn ", head_dim, "x", kv_heads, " ", length));
      }
}

TEST_F(CudaDecoderTest, BitsAreThoseOfEveryRunAndRecomputation) {
  for (const bool plain : {true, false}) {
    DecoderConfig config = wide_config();
    config.plain_attention = plain;
    config.length = 200;
    const Outcome first = on_gpu<uint16_t>(gpu(), DecoderTrial(config));
    for (const Recompute recompute :
         {Recompute::kOff, Recompute::kMlp, Recompute::kLayer}) {
      config.recompute = recompute;
      EXPECT_EQ(on_gpu<uint16_t>(gpu(), DecoderTrial(config), 3), first)
          << "plain " << plain << ", recompute " << static_cast<int>(recompute);
    }
  }
}

// Micro-batches that share the uses of modules have the bits of separate ones,
// except a tied head's.
TEST_F(CudaDecoderTest, MicroBatchesTogetherHaveTheBitsOfSeparateOnes) {
  DecoderConfig config = device_config();
  config.architecture.tied = false;
  const DecoderTrial trial(config), other(config, 7);
  std::vector<Outcome> outcomes;
  for (const bool together : {false, true}) {
    DeviceTrialWeights<uint16_t> weights(gpu(), trial);
    gpu::CudaDecoder<uint16_t> decoder(config, trial.shapes, gpu(), weights, 2,
                                       2);
    const Pass<float> passes[] = {{0, trial.sequences}, {1, other.sequences}};
    double losses[2] = {};
    if (together) {
      decoder.forward(passes, losses);
      decoder.backward(passes, true);
    } else {
      for (size_t p = 0; p < 2; ++p) {
        decoder.forward({passes + p, 1}, {losses + p, 1});
        decoder.backward({passes + p, 1}, p == 1);
      }
    }
    decoder.finish_losses();
    Outcome& outcome = outcomes.emplace_back();
    outcome.loss = losses[0] + losses[1];
    for (size_t t = 0; t < trial.parameters.size(); ++t)
      outcome.gradients.push_back(weights.got(t));
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

// The host waits for a slot's last tokens to have been copied, and for nothing
// else; losses are fetched later.
TEST_F(CudaDecoderTest, AMicroBatchIsOnlyIssued) {
  DecoderConfig config = wide_config();
  for (const bool plain : {true, false}) {
    config.plain_attention = plain;
    const DecoderTrial trial(config);
    DeviceTrialWeights<uint16_t> weights(gpu(), trial);
    gpu::CudaDecoder<uint16_t> decoder(config, trial.shapes, gpu(), weights, 1,
                                       1);
    const Pass<float> pass{0, trial.sequences};
    double loss = 0;
    for (int step = 0; step < 3; ++step) {
      forget_cuda_calls();
      decoder.forward({&pass, 1}, {&loss, 1});
      decoder.backward({&pass, 1}, true);
      if (step > 0)
        EXPECT_EQ(cuda_calls(),
                  "cudaEventSynchronize x 1; cudaMemcpyAsync to the host x 1; ")
            << plain;
    }
    decoder.finish_losses();
  }
}

TEST_F(CudaDecoderTest, EvaluatesTheSequencesThatCount) {
  const DecoderConfig config = device_config();
  const DecoderTrial trial(config);
  DeviceTrialWeights<float> weights(gpu(), trial);
  gpu::CudaDecoder<float> decoder(config, trial.shapes, gpu(), weights, 1, 1);
  Whole<float> whole(trial);
  for (const int64_t counted : {-1, 0, 1, 3}) {
    const double right =
        whole.decoder.evaluate(trial.sequences, nullptr, nullptr, counted);
    EXPECT_NEAR(decoder.evaluate(trial.sequences, nullptr, nullptr, counted),
                right, 1e-5 * right)
        << counted;
  }
}

TEST(DeviceDecoderLimits, AreNamed) {
  const auto message = [](const std::function<void(DecoderConfig&)>& set) {
    DecoderConfig config = device_config();
    set(config);
    try {
      check_device_decoder(config, "tiny");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](DecoderConfig&) {}), "");
  EXPECT_NE(message([](DecoderConfig& c) {
              c.architecture.hidden = 44;
            }).find("hidden=44 must be a multiple of 8"),
            std::string::npos);
  EXPECT_NE(message([](DecoderConfig& c) {
              c.plain_attention = false;
            }).find("--attention plain"),
            std::string::npos);
  EXPECT_NE(message([](DecoderConfig& c) {
              c = wide_config();
              c.plain_attention = false;
              c.length = 1;
            }).find("length=1"),
            std::string::npos);
  EXPECT_NE(message([](DecoderConfig& c) {
              c.architecture.experts = {.count = 4, .ffn = 6};
            }).find("experts"),
            std::string::npos);
}

}  // namespace
}  // namespace canzona::model::cuda_decoder_test
