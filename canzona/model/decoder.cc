#include "canzona/model/decoder.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::model {
namespace {

const DecoderConfig& checked(const DecoderConfig& config,
                             const Parallel& parallel, const Engine& engine,
                             const std::string& name) {
  check_decoder(config, name);
  const DeviceKind* kind = find_device_kind(engine.kind());
  if (kind == nullptr || kind->has_own_memory)
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
                               int64_t together, std::byte* memory) {
  Cutter cutter(memory);
  return DecoderMemory<Real>::take(config, parallel, in_flight, together,
                                   cutter);
}

}  // namespace

template <class Real>
Decoder<Real>::Decoder(const DecoderConfig& config, const Model& shapes,
                       const Parallel& parallel, Engine& engine,
                       Weights<Real>& weights, int64_t in_flight,
                       int64_t together)
    : config_(checked(config, parallel, engine, shapes.name)),
      parallel_(parallel),
      sizes_(decoder_sizes(config, parallel)),
      tensors_(outer_tensors(shapes, config.architecture.tied)),
      engine_(engine),
      weights_(weights),
      tp_(parallel.tp),
      together_(together),
      reserved_(decoder_memory<Real>(config, parallel, in_flight, together)),
      memory_(engine.memory().allocate(reserved_), Release{&engine.memory()}),
      cut_(cut_memory<Real>(config, parallel, in_flight, together,
                            memory_.get())),
      attention_(config, sizes_, engine, cut_.space.attention),
      embedding_(tools(), tensors_.embedding),
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
void Decoder<Real>::forget_logits() {
  std::fill_n(cut_.space.largest_logits, num_logits(),
              -std::numeric_limits<Real>::infinity());
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
void Decoder<Real>::check_passes(Passes passes, bool waits) {
  CANZONA_CHECK(!passes.empty());
  for (const Pass<Real>& pass : passes) {
    check_slot(pass.slot, waits);
    check_sequences(pass.sequences);
    waits_[static_cast<size_t>(pass.slot)] = !waits;
  }
}

template <class Real>
double Decoder<Real>::forward(int64_t slot, std::span<const int32_t> sequences,
                              const Real* input, Real* output) {
  const Pass<Real> pass{slot, sequences, input, output};
  double loss = 0;
  forward({&pass, 1}, {&loss, 1});
  return loss;
}

template <class Real>
void Decoder<Real>::forward(Passes passes, std::span<double> losses) {
  check_passes(passes, false);
  run(passes, losses);
}

template <class Real>
double Decoder<Real>::evaluate(std::span<const int32_t> sequences,
                               const Real* input, Real* output,
                               int64_t counted) {
  check_slot(0, false);
  check_sequences(sequences);
  CANZONA_CHECK(counted >= -1 && counted <= sizes_.micro_batch, counted,
                " sequences count in a micro-batch of ", sizes_.micro_batch);
  const Pass<Real> pass{0, sequences, input, output, counted};
  double loss = 0;
  run({&pass, 1}, {&loss, 1});
  return loss;
}

template <class Real>
template <class Work>
void Decoder<Real>::with_module(int64_t module, Passes passes,
                                const Work& work) {
  weights_.wait(static_cast<int32_t>(module));
  for (size_t p = 0; p < passes.size(); ++p) work(passes[p], p);
  weights_.release(static_cast<int32_t>(module));
}

// A tied head uses the embedding in addition to its own module. If that is on
// another stage, the owner of the weights has borrowed it.
template <class Real>
template <class Work>
void Decoder<Real>::with_head(Passes passes, const Work& work) {
  const auto own = static_cast<int32_t>(config_.architecture.layers + 1);
  const bool shared = config_.architecture.tied && parallel_.has_embedding;
  if (shared) weights_.wait(0);
  weights_.wait(own);
  for (size_t p = 0; p < passes.size(); ++p) work(passes[p], p);
  if (shared) weights_.release(0);
  weights_.release(own);
}

template <class Real>
void Decoder<Real>::layer_forward(size_t i, const Pass<Real>& pass) {
  const LayerSaved<Real>& saved = slot_of(pass).layers[i];
  if (!past_.empty()) attention_.set_past(past_[i]);
  layers_[i].forward(stream(pass, i), saved, stream(pass, i + 1));
  balance_[static_cast<size_t>(pass.slot)] += layers_[i].balance_loss(saved);
}

template <class Real>
void Decoder<Real>::run_layers(Passes passes) {
  for (const Pass<Real>& pass : passes)
    balance_[static_cast<size_t>(pass.slot)] = 0;
  if (parallel_.has_embedding)
    with_module(0, passes, [&](const Pass<Real>& pass, size_t) {
      embedding_.forward(pass.sequences, stream(pass, 0));
    });
  else
    for (const Pass<Real>& pass : passes)
      std::copy_n(pass.in, stream_size(), stream(pass, 0));
  for (size_t i = 0; i < layers_.size(); ++i)
    with_module(layer_module(i), passes, [&](const Pass<Real>& pass, size_t) {
      layer_forward(i, pass);
    });
}

template <class Real>
void Decoder<Real>::run(Passes passes, std::span<double> losses) {
  CANZONA_CHECK_EQ(passes.size(), losses.size());
  std::ranges::fill(losses, 0.0);
  run_layers(passes);
  if (!parallel_.has_head) return;
  with_head(passes, [&](const Pass<Real>& pass, size_t p) {
    const int64_t counted =
        pass.counted < 0 ? sizes_.micro_batch : pass.counted;
    losses[p] = head_.forward(stream(pass, layers_.size()), pass.sequences,
                              slot_of(pass).logits, counted * sizes_.length);
  });
}

template <class Real>
void Decoder<Real>::logits(std::span<const int32_t> sequences,
                           const UseLogits<Real>& use) {
  CANZONA_CHECK(parallel_.has_embedding && parallel_.has_head);
  check_slot(0, false);
  check_sequences(sequences);
  const Pass<Real> pass{0, sequences};
  run_layers({&pass, 1});
  with_head({&pass, 1}, [&](const Pass<Real>&, size_t) {
    head_.logits(stream(pass, layers_.size()), slot_of(pass).logits, use);
  });
}

template <class Real>
void Decoder<Real>::set_past(std::span<PastTokens<Real>> layers) {
  CANZONA_CHECK_EQ(layers.size(), layers_.size(), "layers");
  past_ = layers;
}

template <class Real>
void Decoder<Real>::backward(int64_t slot, std::span<const int32_t> sequences,
                             const Real* output_gradient, Real* input_gradient,
                             bool last) {
  const Pass<Real> pass{slot, sequences, output_gradient, input_gradient};
  backward({&pass, 1}, last);
}

template <class Real>
void Decoder<Real>::layer_backward(size_t i, const Pass<Real>& pass,
                                   Real* gradient, Announce what) {
  const Real* x = stream(pass, i);
  const LayerSaved<Real>& saved = slot_of(pass).layers[i];
  if (config_.recompute == Recompute::kLayer)
    layers_[i].forward(x, saved, nullptr);
  layers_[i].backward(x, saved, gradient, what);
}

template <class Real>
void Decoder<Real>::backward(Passes passes, bool last) {
  CANZONA_CHECK(std::cmp_less_equal(passes.size(), together_), passes.size(),
                " micro-batches at once, with memory for ", together_);
  check_passes(passes, true);
  const auto gradient = [&](size_t p) {
    return cut_.space.gradients + static_cast<int64_t>(p) * stream_size();
  };
  const auto what = [&](size_t p) {
    if (p + 1 < passes.size()) return Announce::kNothing;
    return last ? Announce::kLast : Announce::kPart;
  };
  if (parallel_.has_head)
    with_head(passes, [&](const Pass<Real>& pass, size_t p) {
      head_.backward(stream(pass, layers_.size()), pass.sequences,
                     slot_of(pass).logits, gradient(p), what(p));
    });
  else
    for (size_t p = 0; p < passes.size(); ++p)
      std::copy_n(passes[p].in, stream_size(), gradient(p));
  for (size_t i = layers_.size(); i-- > 0;)
    with_module(layer_module(i), passes, [&](const Pass<Real>& pass, size_t p) {
      layer_backward(i, pass, gradient(p), what(p));
    });
  if (parallel_.has_embedding)
    with_module(0, passes, [&](const Pass<Real>& pass, size_t p) {
      embedding_.backward(pass.sequences, gradient(p), what(p));
    });
  else
    for (size_t p = 0; p < passes.size(); ++p)
      std::copy_n(gradient(p), stream_size(), passes[p].out);
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

}  // namespace canzona::model
