#include "canzona/model/decoder.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/ops/table.h"

namespace canzona {
namespace {

const DecoderConfig& checked(const DecoderConfig& config,
                             const Parallel& parallel, const Engine& engine,
                             const std::string& name) {
  check_decoder(config, name);
  if (engine.kind() != "cpu")
    throw UsageError(cat("decoder ", quoted(name),
                         ": computes on a CPU, the engine is of kind ",
                         quoted(engine.kind())));
  CANZONA_CHECK(parallel.tp != nullptr || parallel.planned_tp == 1);
  CANZONA_CHECK(parallel.ep != nullptr || parallel.planned_ep == 1);
  const int64_t end = parallel.first_layer + parallel.num_layers;
  CANZONA_CHECK(parallel.first_layer >= 0 && parallel.num_layers >= 0 &&
                    end <= config.architecture.layers,
                "layers ", parallel.first_layer, " to ", end, " of ",
                config.architecture.layers);
  return config;
}

template <class Real>
DecoderMemory<Real> cut_memory(const DecoderConfig& config,
                               const Parallel& parallel, int64_t in_flight,
                               std::byte* memory) {
  Cutter cutter(memory);
  return DecoderMemory<Real>::take(config, parallel, in_flight, cutter);
}

}  // namespace

template <class Real>
Decoder<Real>::Decoder(const DecoderConfig& config, const Model& shapes,
                       const Parallel& parallel, Engine& engine,
                       Weights<Real>& weights, int64_t in_flight)
    : config_(checked(config, parallel, engine, shapes.name)),
      parallel_(parallel),
      sizes_(decoder_sizes(config, parallel)),
      tensors_(outer_tensors(shapes, config.architecture.tied)),
      engine_(engine),
      weights_(weights),
      tp_(parallel.tp),
      reserved_(decoder_memory<Real>(config, parallel, in_flight)),
      memory_(engine.memory().allocate(reserved_), Release{&engine.memory()}),
      cut_(cut_memory<Real>(config, parallel, in_flight, memory_.get())),
      attention_(config, sizes_, engine, cut_.space.attention),
      head_(tools(), tensors_,
            config.architecture.tied && parallel.has_embedding),
      waits_(static_cast<size_t>(in_flight)),
      balance_(static_cast<size_t>(in_flight)) {
  build_layers(shapes);
}

template <class Real>
Tools<Real> Decoder<Real>::tools() {
  return {config_, sizes_, engine_, weights_, tp_, cut_.space, attention_};
}

template <class Real>
void Decoder<Real>::build_layers(const Model& shapes) {
  layers_.reserve(static_cast<size_t>(parallel_.num_layers));
  for (int64_t i = 0; i < parallel_.num_layers; ++i) {
    Real* norms = cut_.space.head_norms;
    layers_.emplace_back(
        tools(), shapes, parallel_.first_layer + i, parallel_,
        norms == nullptr ? nullptr : norms + i * 2 * sizes_.head_dim);
  }
}

template <class Real>
void Decoder<Real>::check_sequences(std::span<const int32_t> sequences) const {
  if (!parallel_.has_embedding && !parallel_.has_head) return;
  CANZONA_CHECK_EQ(sequences.size(), sizes_.micro_batch * (sizes_.length + 1),
                   "tokens of a micro-batch");
  const int64_t vocab = config_.architecture.vocab;
  for (const int32_t token : sequences)
    CANZONA_CHECK(token >= 0 && token < vocab, "token ", token,
                  " of a vocabulary of ", vocab);
}

template <class Real>
void Decoder<Real>::check_slot(int64_t slot, bool waits) const {
  CANZONA_CHECK(slot >= 0 && slot < static_cast<int64_t>(waits_.size()),
                "slot ", slot, " of ", waits_.size());
  CANZONA_CHECK(
      waits_[static_cast<size_t>(slot)] == waits, "slot ", slot,
      waits ? " holds no micro-batch" : " holds one that waits for backward");
}

template <class Real>
double Decoder<Real>::forward(int64_t slot, std::span<const int32_t> sequences,
                              const Real* input, Real* output) {
  check_slot(slot, false);
  const double loss = run(slot, sequences, input, output);
  waits_[static_cast<size_t>(slot)] = true;
  return loss;
}

template <class Real>
double Decoder<Real>::evaluate(std::span<const int32_t> sequences,
                               const Real* input, Real* output) {
  check_slot(0, false);
  return run(0, sequences, input, output);
}

template <class Real>
double Decoder<Real>::run(int64_t number, std::span<const int32_t> sequences,
                          const Real* input, Real* output) {
  check_sequences(sequences);
  const Slot<Real>& slot = cut_.slots[static_cast<size_t>(number)];
  const auto stream = [&](size_t i) {
    return i < slot.inputs.size() ? slot.inputs[i] : output;
  };
  if (parallel_.has_embedding)
    embed(sequences, stream(0));
  else
    std::copy_n(input, sizes_.tokens() * sizes_.hidden, stream(0));
  double& balance = balance_[static_cast<size_t>(number)];
  balance = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    weights_.wait(static_cast<int32_t>(parallel_.first_layer + 1) +
                  static_cast<int32_t>(i));
    layers_[i].forward(stream(i), slot.layers[i], stream(i + 1));
    balance += layers_[i].balance_loss(slot.layers[i]);
  }
  if (!parallel_.has_head) return 0;
  if (config_.architecture.tied) weights_.wait(0);
  weights_.wait(static_cast<int32_t>(config_.architecture.layers + 1));
  return head_.forward(stream(layers_.size()), sequences, slot.logits);
}

template <class Real>
void Decoder<Real>::backward(int64_t number, std::span<const int32_t> sequences,
                             const Real* output_gradient, Real* input_gradient,
                             bool last) {
  check_slot(number, true);
  check_sequences(sequences);
  const Slot<Real>& slot = cut_.slots[static_cast<size_t>(number)];
  Real* gradient = cut_.space.gradient;
  const int64_t count = sizes_.tokens() * sizes_.hidden;
  if (parallel_.has_head)
    head_.backward(slot.inputs.back(), sequences, slot.logits, gradient, last);
  else
    std::copy_n(output_gradient, count, gradient);
  for (size_t i = layers_.size(); i-- > 0;) {
    const Real* x = slot.inputs[i];
    if (config_.recompute) layers_[i].forward(x, slot.layers[i], nullptr);
    layers_[i].backward(x, slot.layers[i], gradient, last);
  }
  if (parallel_.has_embedding)
    embed_backward(sequences, gradient, last);
  else
    std::copy_n(gradient, count, input_gradient);
  waits_[static_cast<size_t>(number)] = false;
}

// This rank's row of the token, or one outside of its rows.
template <class Real>
int64_t Decoder<Real>::embedding_row(std::span<const int32_t> sequences,
                                     int64_t token) const {
  const int64_t place =
      token / sizes_.length * (sizes_.length + 1) + token % sizes_.length;
  return sequences[static_cast<size_t>(place)] - tp_.rank() * sizes_.vocab;
}

template <class Real>
void Decoder<Real>::embed(std::span<const int32_t> sequences, Real* out) {
  weights_.wait(0);
  const Real* table = weights_.parameter(tensors_.embedding);
  const int64_t hidden = sizes_.hidden;
  for (int64_t t = 0; t < sizes_.tokens(); ++t) {
    const int64_t row = embedding_row(sequences, t);
    if (row >= 0 && row < sizes_.vocab)
      std::copy_n(table + row * hidden, hidden, out + t * hidden);
    else
      std::fill_n(out + t * hidden, hidden, Real{0});
  }
  tp_.add(out, sizes_.tokens() * hidden, "embedding");
}

template <class Real>
void Decoder<Real>::embed_backward(std::span<const int32_t> sequences,
                                   const Real* gradient, bool last) {
  Real* table = weights_.gradient(tensors_.embedding);
  const int64_t hidden = sizes_.hidden;
  for (int64_t t = 0; t < sizes_.tokens(); ++t) {
    const int64_t row = embedding_row(sequences, t);
    if (row < 0 || row >= sizes_.vocab) continue;
    Real* sum = table + row * hidden;
    ops<Real>().add(sum, sum, gradient + t * hidden, hidden);
  }
  if (last) weights_.ready(tensors_.embedding);
}

template <class Real>
double Decoder<Real>::balance_loss(int64_t slot) const {
  CANZONA_CHECK(slot >= 0 && slot < static_cast<int64_t>(balance_.size()));
  return balance_[static_cast<size_t>(slot)];
}

template <class Real>
double Decoder<Real>::comm_seconds() const {
  return std::accumulate(layers_.begin(), layers_.end(), tp_.seconds(),
                         [](double sum, const Layer<Real>& layer) {
                           return sum + layer.comm_seconds();
                         });
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace canzona
