// Compares gradients in fp64 with differences of the loss, for every tensor and
// every option.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"

namespace canzona::model::decoder_gradient_test {
namespace {

struct Option {
  std::string name;
  std::function<void(DecoderConfig&)> set;
};
std::ostream& operator<<(std::ostream& out, const Option& option) {
  return out << option.name;
}

double total_loss(Decoder<double>& decoder, const DecoderTrial& trial) {
  const double loss = decoder.evaluate(trial.sequences, nullptr, nullptr);
  return loss + decoder.balance_loss(0);
}

// Uses two steps to each side, so that the error is of fourth order.
double difference(Decoder<double>& decoder, const DecoderTrial& trial,
                  double& parameter) {
  const double kept = parameter;
  const double step = 3e-4;
  const auto at = [&](double offset) {
    parameter = kept + offset;
    return total_loss(decoder, trial);
  };
  const double near = at(step) - at(-step);
  const double far = at(2 * step) - at(-2 * step);
  parameter = kept;
  return (8 * near - far) / (12 * step);
}

class DecoderGradient : public testing::TestWithParam<Option> {};

TEST_P(DecoderGradient, IsTheDifferenceOfTheLoss) {
  DecoderConfig config = small_decoder();
  GetParam().set(config);
  const DecoderTrial trial(config);
  const Parallel whole = whole_model(config);
  const auto engine = make_cpu_engine();
  TrialWeights<double> weights(trial, whole);
  Decoder<double> decoder(config, trial.shapes, whole, *engine, weights);
  decoder.forward(0, trial.sequences, nullptr, nullptr);
  decoder.backward(0, trial.sequences, nullptr, nullptr, true);
  for (size_t t = 0; t < weights.parameters.size(); ++t) {
    const int64_t count = trial.shapes.tensors[t].elements();
    const int64_t stride = std::max<int64_t>(1, count / 24);
    for (int64_t i = 0; i < count; i += stride) {
      const auto k = static_cast<size_t>(i);
      const double right = difference(decoder, trial, weights.parameters[t][k]);
      EXPECT_NEAR(weights.gradients[t][k], right, 1e-9 + 1e-7 * std::abs(right))
          << trial.shapes.tensors[t].name << " element " << i;
    }
  }
}

void set_experts(DecoderConfig& c) {
  c.architecture.experts = {.count = 4, .ffn = 6, .first_layer = 1};
}

INSTANTIATE_TEST_SUITE_P(
    Options, DecoderGradient,
    testing::Values(
        Option{"tied", [](DecoderConfig&) {}},
        Option{"untied", [](DecoderConfig& c) { c.architecture.tied = false; }},
        Option{"recomputed",
               [](DecoderConfig& c) { c.recompute = Recompute::kLayer; }},
        Option{"recomputed_mlp",
               [](DecoderConfig& c) { c.recompute = Recompute::kMlp; }},
        Option{"head_in_chunks", [](DecoderConfig& c) { c.head_chunk = 3; }},
        Option{"one_sequence", [](DecoderConfig& c) { c.micro_batch = 1; }},
        Option{"three_sequences", [](DecoderConfig& c) { c.micro_batch = 3; }},
        Option{"several_blocks",
               [](DecoderConfig& c) {
                 c.length = 150;
                 c.micro_batch = 1;
                 c.architecture.layers = 1;
               }},
        Option{"one_of_everything",
               [](DecoderConfig& c) {
                 c.length = c.micro_batch = 1;
                 c.architecture.layers = 1;
                 c.architecture.heads = c.architecture.kv_heads = 1;
                 c.architecture.head_dim = 2;
               }},
        Option{"a_group_for_each_head",
               [](DecoderConfig& c) { c.architecture.kv_heads = 4; }},
        Option{"one_group",
               [](DecoderConfig& c) { c.architecture.kv_heads = 1; }},
        Option{"no_qk_norm",
               [](DecoderConfig& c) { c.architecture.qk_norm = false; }},
        Option{"no_qk_norm_in_blocks",
               [](DecoderConfig& c) {
                 c.architecture.qk_norm = false;
                 c.length = 150;
                 c.micro_batch = 1;
                 c.architecture.layers = 1;
                 c.recompute = Recompute::kLayer;
               }},
        Option{"experts", set_experts},
        Option{"recomputed_experts",
               [](DecoderConfig& c) {
                 set_experts(c);
                 c.recompute = Recompute::kLayer;
               }},
        Option{"recomputed_mlp_of_experts",
               [](DecoderConfig& c) {
                 set_experts(c);
                 c.recompute = Recompute::kMlp;
               }}),
    [](const auto& option) { return option.param.name; });

}  // namespace
}  // namespace canzona::model::decoder_gradient_test
