// For tests: an expert block with weights by chance, and what it should give,
// written down once more in fp64, token by token.
//
//   const ExpertTrial trial({.experts = 4, .choices = 2});
//   TrialWeights<double> weights(trial, parallel);
//   const ReferenceResult right = reference(trial, trial.parameters, x);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/model/test_decoder.h"

namespace canzona {

using Numbers = Values;

struct TrialSizes {
  int64_t experts = 4;
  int64_t choices = 2;
  int64_t shared = 0;
  int64_t hidden = 6;
  int64_t ffn = 4;
  int64_t length = 5;
  int64_t sequences = 2;
};

inline Numbers random_numbers(uint64_t seed, int64_t count, double scale) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(scale * normal_at(seed, static_cast<uint64_t>(i)));
  return numbers;
}

// A decoder of one layer, of which the expert block is used alone.
struct ExpertTrial : DecoderTrial {
  explicit ExpertTrial(const TrialSizes& sizes, uint64_t seed = 1)
      : DecoderTrial(config_of(sizes), seed) {
    for (Numbers& values : parameters)
      for (double& value : values) value *= 2;
  }

  static DecoderConfig config_of(const TrialSizes& sizes) {
    DecoderConfig config;
    config.architecture = {
        .layers = 1,
        .hidden = sizes.hidden,
        .ffn = 4,
        .vocab = 4,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 2,
        .qk_norm = true,
        .experts = {
            .count = sizes.experts, .ffn = sizes.ffn, .shared = sizes.shared}};
    config.length = sizes.length;
    config.micro_batch = sizes.sequences;
    config.experts_per_token = sizes.choices;
    config.balance_coefficient = 0.3;
    return config;
  }

  int64_t elements() const {  // of x
    return config.tokens() * config.architecture.hidden;
  }
  size_t tensor(const std::string& name) const {
    const auto found = std::ranges::find(
        shapes.tensors, "model.layers.0.mlp." + name, &Tensor::name);
    return static_cast<size_t>(found - shapes.tensors.begin());
  }
  // The block's tensors, in model order.
  std::vector<size_t> tensors() const {
    std::vector<size_t> found;
    for (size_t i = 0; i < shapes.tensors.size(); ++i)
      if (shapes.tensors[i].name.find(".mlp.") != std::string::npos)
        found.push_back(i);
    return found;
  }
};

struct ReferenceResult {
  Numbers y;
  double balance = 0;  // times the coefficient
};

ReferenceResult reference(const ExpertTrial& trial,
                          const std::vector<Numbers>& parameters,
                          const Numbers& x);

// Gradients of Σ dy·y + balance by differences of the reference.
struct ReferenceGradients {
  Numbers x;
  std::vector<Numbers> parameters;
};
ReferenceGradients differences(const ExpertTrial& trial, const Numbers& x,
                               const Numbers& dy);

}  // namespace canzona
