// For tests: an expert block with weights by chance, its shards on a rank, and
// what it should give, written down once more in fp64, token by token.
//
//   const ExpertTrial trial({.experts = 4, .choices = 2});
//   ShardWeights<double> weights(trial, parallel);
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
#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"
#include "canzona/model/weights.h"
#include "canzona/shapes/architecture.h"

namespace canzona {

using Numbers = std::vector<double>;

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

struct ExpertTrial {
  explicit ExpertTrial(const TrialSizes& sizes, uint64_t seed = 1) {
    config.architecture = {
        .layers = 1,
        .hidden = sizes.hidden,
        .ffn = sizes.ffn,
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
    shapes = generate_model(config.architecture, "trial", true);
    for (const Tensor& tensor : shapes.tensors)
      parameters.push_back(random_numbers(++seed, tensor.elements(), 0.6));
  }

  int64_t elements() const {  // of x
    return config.tokens() * config.architecture.hidden;
  }
  int32_t tensor(const std::string& name) const {
    const auto found = std::ranges::find(
        shapes.tensors, "model.layers.0.mlp." + name, &Tensor::name);
    return static_cast<int32_t>(found - shapes.tensors.begin());
  }
  const Numbers& weight(const std::string& name,
                        const std::vector<Numbers>& from) const {
    return from.at(static_cast<size_t>(tensor(name)));
  }
  // The block's tensors, in model order.
  std::vector<int32_t> tensors() const {
    std::vector<int32_t> found;
    for (size_t i = 0; i < shapes.tensors.size(); ++i)
      if (shapes.tensors[i].name.find(".mlp.") != std::string::npos)
        found.push_back(static_cast<int32_t>(i));
    return found;
  }

  DecoderConfig config;
  Model shapes;
  std::vector<Numbers> parameters;  // whole
};

// Element (row, col) of a rank's shard in the whole tensor.
inline int64_t whole_place(const Tensor& tensor, int tp, int rank, int64_t i) {
  const int64_t cols =
      tensor.cut == Cut::kColumns ? tensor.cols() / tp : tensor.cols();
  int64_t row = i / cols, col = i % cols;
  if (tensor.cut == Cut::kColumns) col += rank * cols;
  if (tensor.cut == Cut::kRows) {  // gate, then up, each by itself
    const int64_t run = tensor.rows() / 2 / tp;
    row = row / run * (tensor.rows() / 2) + rank * run + row % run;
  }
  return row * tensor.cols() + col;
}

inline int64_t shard_size(const Tensor& tensor, int tp) {
  return tensor.cut == Cut::kNone ? tensor.elements() : tensor.elements() / tp;
}

template <class Real>
class ShardWeights : public Weights<Real> {
 public:
  ShardWeights(const ExpertTrial& trial, const Parallel& parallel)
      : parameters(trial.parameters.size()),
        gradients(trial.parameters.size()),
        num_ready(trial.parameters.size()) {
    const int tp = parallel.tp_size();
    for (const int32_t tensor : trial.tensors()) {
      const auto t = static_cast<size_t>(tensor);
      const Tensor& shape = trial.shapes.tensors[t];
      for (int64_t i = 0; i < shard_size(shape, tp); ++i) {
        const int64_t place = whole_place(shape, tp, parallel.tp_rank(), i);
        parameters[t].push_back(
            static_cast<Real>(trial.parameters[t][static_cast<size_t>(place)]));
      }
      gradients[t].resize(parameters[t].size());
    }
  }

  void wait(int32_t) override {}
  const Real* parameter(int32_t tensor) override {
    return parameters.at(static_cast<size_t>(tensor)).data();
  }
  Real* gradient(int32_t tensor) override {
    return gradients.at(static_cast<size_t>(tensor)).data();
  }
  void ready(int32_t tensor) override {
    ++num_ready.at(static_cast<size_t>(tensor));
  }

  std::vector<std::vector<Real>> parameters, gradients;
  std::vector<int> num_ready;
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
