#include "canzona/model/test_decoder.h"

#include "canzona/base/random.h"

namespace canzona::model {

DecoderConfig small_decoder() {
  DecoderConfig config;
  config.architecture = {.layers = 2,
                         .hidden = 12,
                         .ffn = 10,
                         .vocab = 14,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 6,
                         .tied = true,
                         .qk_norm = true};
  config.length = 5;
  config.micro_batch = 2;
  config.balance_coefficient = 0.3;
  return config;
}

DecoderTrial::DecoderTrial(const DecoderConfig& given, uint64_t seed)
    : config(given), shapes(decoder_shapes(given, "trial")) {
  for (const Tensor& tensor : shapes.tensors) {
    const bool is_norm = tensor.role == Role::kNorm;
    Values& values = parameters.emplace_back();
    ++seed;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      values.push_back((is_norm ? 1 : 0) +
                       0.3 * normal_at(seed, static_cast<uint64_t>(i)));
  }
  const int64_t count = config.micro_batch * (config.length + 1);
  for (int64_t i = 0; i < count; ++i)
    sequences.push_back(
        static_cast<int32_t>(bits_at(seed + 1, static_cast<uint64_t>(i)) %
                             static_cast<uint64_t>(config.architecture.vocab)));
}

Parallel whole_model(const DecoderConfig& config) {
  return {.num_layers = config.architecture.layers};
}

int64_t shard_elements(const Tensor& tensor, int tp) {
  return tensor.cut == Cut::kNone ? tensor.elements() : tensor.elements() / tp;
}

int64_t place_in_whole(const Tensor& tensor, int tp, int rank, int64_t i) {
  if (tensor.cut == Cut::kNone) return i;
  if (tensor.cut == Cut::kColumns) {
    const int64_t cols = tensor.cols() / tp;
    return i / cols * tensor.cols() + rank * cols + i % cols;
  }
  const int64_t rows = tensor.rows() / tp;
  const int64_t row = i / tensor.cols();
  int64_t whole = rank * rows + row;  // for q, k, v too: whole groups
  if (!tensor.sections.empty() && tensor.sections[0].name == "gate") {
    const int64_t half = rows / 2;
    whole = row / half * (tensor.rows() / 2) + rank * half + row % half;
  }
  return whole * tensor.cols() + i % tensor.cols();
}

template <class Real>
TrialWeights<Real>::TrialWeights(const DecoderTrial& trial,
                                 const Parallel& parallel)
    : parameters(trial.parameters.size()), gradients(trial.parameters.size()) {
  const int tp = parallel.tp_size();
  for (size_t t = 0; t < parameters.size(); ++t) {
    const Tensor& tensor = trial.shapes.tensors[t];
    for (int64_t i = 0; i < shard_elements(tensor, tp); ++i) {
      const int64_t place = place_in_whole(tensor, tp, parallel.tp_rank(), i);
      parameters[t].push_back(
          static_cast<Real>(trial.parameters[t][static_cast<size_t>(place)]));
    }
    gradients[t].resize(parameters[t].size());
  }
}

template class TrialWeights<float>;
template class TrialWeights<double>;

}  // namespace canzona::model
