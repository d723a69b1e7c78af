// For tests: small decoders with random weights, their shards on a rank, and a
// second implementation of the loss in fp64, token by token.
//
//   const DecoderTrial trial(small_decoder());
//   TrialWeights<double> weights(trial, parallel);
//   reference_loss(trial, trial.parameters);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"

namespace canzona::model {

using Values = std::vector<double>;

// Two dense layers, 4 heads in 2 groups, 2 sequences of 5 tokens, tied.
DecoderConfig small_decoder();

struct DecoderTrial {
  explicit DecoderTrial(const DecoderConfig& given, uint64_t seed = 1);

  DecoderConfig config;
  Model shapes;
  std::vector<Values> parameters;  // whole
  std::vector<int32_t> sequences;  // micro_batch x (length + 1)
};

Parallel whole_model(const DecoderConfig& config);

// Returns the index in the whole tensor of element i of a rank's shard.
int64_t place_in_whole(const Tensor& tensor, int tp, int rank, int64_t i);
int64_t shard_elements(const Tensor& tensor, int tp);

template <class Real>
class TrialWeights : public Weights<Real> {
 public:
  TrialWeights(const DecoderTrial& trial, const Parallel& parallel);

  void wait(int32_t module) override { waits.push_back(module); }
  void release(int32_t module) override { releases.push_back(module); }
  const Real* parameter(int32_t tensor) override {
    return parameters.at(static_cast<size_t>(tensor)).data();
  }
  Real* gradient(int32_t tensor) override {
    return gradients.at(static_cast<size_t>(tensor)).data();
  }
  void ready(int32_t tensor, bool last) override {
    (last ? readies : parts).push_back(tensor);
  }

  std::vector<std::vector<Real>> parameters, gradients;
  std::vector<int32_t> waits, releases;
  std::vector<int32_t> readies, parts;  // announced last, and before
};

// Returns the mean loss of a dense decoder, by plain loops.
double reference_loss(const DecoderTrial& trial,
                      const std::vector<Values>& parameters);

}  // namespace canzona::model
