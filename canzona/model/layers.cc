#include "canzona/model/layers.h"

#include <algorithm>
#include <cmath>

#include "canzona/model/ops/table.h"

namespace canzona::model {

template <class Real>
FeedBytes feed_bytes(const DecoderConfig& config, const Parallel& parallel,
                     int64_t layer) {
  if (config.architecture.experts.in_layer(layer))
    return {Experts<Real>::saved_bytes(config, parallel),
            Experts<Real>::scratch_bytes(config, parallel)};
  const DecoderSizes sizes = decoder_sizes(config, parallel);
  return {Mlp<Real>::saved_bytes(sizes), Mlp<Real>::scratch_bytes(sizes)};
}

template <class Real>
typename FeedForward<Real>::Block FeedForward<Real>::make_block(
    const DecoderConfig& config, const Model& shapes, int64_t layer,
    const Parallel& parallel, Engine& engine, Weights<Real>& weights) {
  if (config.architecture.experts.in_layer(layer))
    return Experts<Real>(config, shapes, layer, parallel, engine, weights);
  return Mlp<Real>(decoder_sizes(config, parallel),
                   layer_tensors(shapes, layer, false), engine, weights);
}

template <class Real>
FeedForward<Real>::FeedForward(const DecoderConfig& config, const Model& shapes,
                               int64_t layer, const Parallel& parallel,
                               Engine& engine, Weights<Real>& weights)
    : block_(make_block(config, shapes, layer, parallel, engine, weights)) {}

template <class Real>
void FeedForward<Real>::forward(const Real* x, Real* y, std::byte* saved,
                                std::byte* scratch) {
  std::visit([&](auto& block) { block.forward(x, y, saved, scratch); }, block_);
}

template <class Real>
void FeedForward<Real>::backward(const Real* x, const Real* dy, Real* dx,
                                 std::byte* saved, std::byte* scratch,
                                 Announce what) {
  std::visit(
      [&](auto& block) { block.backward(x, dy, dx, saved, scratch, what); },
      block_);
}

template <class Real>
double FeedForward<Real>::balance_loss(const std::byte* saved) const {
  const auto* experts = std::get_if<Experts<Real>>(&block_);
  return experts == nullptr ? 0 : experts->balance_loss(saved);
}

template <class Real>
double FeedForward<Real>::comm_seconds() const {
  const auto* experts = std::get_if<Experts<Real>>(&block_);
  return experts == nullptr ? 0 : experts->comm_seconds();
}

template FeedBytes feed_bytes<float>(const DecoderConfig&, const Parallel&,
                                     int64_t);
template FeedBytes feed_bytes<double>(const DecoderConfig&, const Parallel&,
                                      int64_t);
template class FeedForward<float>;
template class FeedForward<double>;

template <class Real>
Layer<Real>::Layer(const Tools<Real>& tools, const Model& shapes, int64_t layer,
                   const Parallel& parallel, Real* head_norms)
    : tools_(tools),
      tensors_(layer_tensors(
          shapes, layer, tools.config.architecture.experts.in_layer(layer))),
      feed_(tools.config, shapes, layer, parallel, tools.engine, tools.weights),
      head_norms_(head_norms) {
  if (head_norms_ != nullptr)
    std::fill_n(head_norms_, 2 * tools.sizes.head_dim, Real{0});
  if (tools.space.largest_logits != nullptr)
    largest_logits_ = tools.space.largest_logits +
                      (layer - parallel.first_layer) * tools.sizes.heads();
}

template <class Real>
Linear<Real> Layer<Real>::qkv() const {
  return {tools_.engine, tools_.weights, tensors_.qkv, tools_.sizes.qkv(),
          tools_.sizes.hidden};
}

template <class Real>
Linear<Real> Layer<Real>::o() const {
  return {tools_.engine, tools_.weights, tensors_.o, tools_.sizes.hidden,
          tools_.sizes.width()};
}

template <class Real>
void Layer<Real>::done(int32_t tensor, Announce what) const {
  announce(tools_.weights, tensor, what);
}

template <class Real>
void Layer<Real>::norm(Real* out, const Real* x, int32_t weight) const {
  ops<Real>().norm(out, x, tools_.weights.parameter(weight),
                   tools_.sizes.tokens(), tools_.sizes.hidden,
                   tools_.epsilon());
}

template <class Real>
void Layer<Real>::forward(const Real* x, const LayerSaved<Real>& saved,
                          Real* out) {
  const Space<Real>& space = tools_.space;
  Weights<Real>& weights = tools_.weights;
  const int64_t tokens = tools_.sizes.tokens();
  const int64_t count = tokens * tools_.sizes.hidden;
  norm(space.normed, x, tensors_.input_norm);
  qkv().apply(saved.qkv, space.normed, tokens);
  tools_.attention.forward(saved.qkv, head_norm_weights(), saved.attention,
                           saved.log_sums, largest_logits_);
  o().apply(space.delta, saved.attention, tokens);
  tools_.tp.add(space.delta, count, "attention");
  ops<Real>().add_norm(space.normed, saved.middle, x, space.delta,
                       weights.parameter(tensors_.post_norm), tokens,
                       tools_.sizes.hidden, tools_.epsilon());
  feed_.forward(space.normed, out == nullptr ? nullptr : space.delta,
                saved.feed, space.feed);
  if (out == nullptr) return;
  tools_.tp.add(space.delta, count, "feed forward");
  ops<Real>().add(out, saved.middle, space.delta, count);
}

template <class Real>
HeadNorms<Real> Layer<Real>::head_norm_weights() const {
  if (!has_head_norms()) return {};
  return {tools_.weights.parameter(tensors_.query_norm),
          tools_.weights.parameter(tensors_.key_norm)};
}

template <class Real>
HeadNormGradients<Real> Layer<Real>::head_norm_gradients() const {
  if (!has_head_norms()) return {};
  if (head_norms_ != nullptr)
    return {head_norms_, head_norms_ + tools_.sizes.head_dim};
  return {tools_.weights.gradient(tensors_.query_norm),
          tools_.weights.gradient(tensors_.key_norm)};
}

template <class Real>
void Layer<Real>::norm_backward(const Real* x, int32_t weight, Real* gradient,
                                Announce what) {
  const DecoderSizes& sizes = tools_.sizes;
  tools_.tp.add(tools_.space.delta, sizes.tokens() * sizes.hidden, "gradient");
  ops<Real>().norm_backward(gradient, tools_.weights.gradient(weight), x,
                            tools_.weights.parameter(weight),
                            tools_.space.delta, sizes.tokens(), sizes.hidden,
                            tools_.epsilon());
  done(weight, what);
}

template <class Real>
void Layer<Real>::backward(const Real* x, const LayerSaved<Real>& saved,
                           Real* gradient, Announce what) {
  const Space<Real>& space = tools_.space;
  norm(space.normed, saved.middle, tensors_.post_norm);
  if (tools_.config.recompute == Recompute::kMlp)
    feed_.forward(space.normed, nullptr, saved.feed, space.feed);
  feed_.backward(space.normed, gradient, space.delta, saved.feed, space.feed,
                 what);
  norm_backward(saved.middle, tensors_.post_norm, gradient, what);
  attend_backward(saved, gradient, what);
  norm(space.normed, x, tensors_.input_norm);
  qkv().add_gradient(saved.qkv, space.normed, tools_.sizes.tokens());
  done(tensors_.qkv, what);
  qkv().apply_transposed(space.delta, saved.qkv, tools_.sizes.tokens());
  norm_backward(x, tensors_.input_norm, gradient, what);
}

// Replaces saved.qkv by its gradient.
template <class Real>
void Layer<Real>::attend_backward(const LayerSaved<Real>& saved,
                                  const Real* gradient, Announce what) {
  Real* heads = tools_.space.heads_gradient;
  const int64_t tokens = tools_.sizes.tokens();
  o().add_gradient(gradient, saved.attention, tokens);
  done(tensors_.o, what);
  o().apply_transposed(heads, gradient, tokens);
  tools_.attention.backward(saved.qkv, head_norm_weights(),
                            {saved.attention, saved.log_sums, heads},
                            head_norm_gradients());
  if (!has_head_norms()) return;
  // Until the last micro-batch its gradients are announced as zeros: this needs
  // fewer sums over ranks, and gives the same bits whether or not gradients
  // leave with each micro-batch.
  if (head_norms_ != nullptr && what == Announce::kLast) add_up_head_norms();
  done(tensors_.query_norm, what);
  done(tensors_.key_norm, what);
}

template <class Real>
void Layer<Real>::add_up_head_norms() {
  const int64_t dim = tools_.sizes.head_dim;
  tools_.tp.add(head_norms_, 2 * dim, "head norms");
  Real* query = tools_.weights.gradient(tensors_.query_norm);
  Real* key = tools_.weights.gradient(tensors_.key_norm);
  ops<Real>().add(query, query, head_norms_, dim);
  ops<Real>().add(key, key, head_norms_ + dim, dim);
  std::fill_n(head_norms_, 2 * dim, Real{0});
}

template class Layer<float>;
template class Layer<double>;

template <class Real>
int64_t Embedding<Real>::row_of(std::span<const int32_t> sequences,
                                int64_t token) const {
  const int64_t length = tools_.sizes.length;
  const int64_t place = token / length * (length + 1) + token % length;
  return sequences[static_cast<size_t>(place)] -
         tools_.tp.rank() * tools_.sizes.vocab;
}

template <class Real>
void Embedding<Real>::forward(std::span<const int32_t> sequences, Real* x) {
  const DecoderSizes& sizes = tools_.sizes;
  const Real* table = tools_.weights.parameter(tensor_);
  const int64_t hidden = sizes.hidden;
  for (int64_t t = 0; t < sizes.tokens(); ++t) {
    const int64_t row = row_of(sequences, t);
    if (row >= 0 && row < sizes.vocab)
      std::copy_n(table + row * hidden, hidden, x + t * hidden);
    else
      std::fill_n(x + t * hidden, hidden, Real{0});
  }
  tools_.tp.add(x, sizes.tokens() * hidden, "embedding");
}

template <class Real>
void Embedding<Real>::backward(std::span<const int32_t> sequences,
                               const Real* gradient, Announce what) {
  const DecoderSizes& sizes = tools_.sizes;
  Real* table = tools_.weights.gradient(tensor_);
  const int64_t hidden = sizes.hidden;
  for (int64_t t = 0; t < sizes.tokens(); ++t) {
    const int64_t row = row_of(sequences, t);
    if (row < 0 || row >= sizes.vocab) continue;
    Real* sum = table + row * hidden;
    ops<Real>().add(sum, sum, gradient + t * hidden, hidden);
  }
  announce(tools_.weights, tensor_, what);
}

template class Embedding<float>;
template class Embedding<double>;

template <class Real>
Linear<Real> Head<Real>::linear() const {
  return {tools_.engine, tools_.weights, tensors_.head, tools_.sizes.vocab,
          tools_.sizes.hidden};
}

template <class Real>
template <class Work>
void Head<Real>::each_chunk(Real* logits, const Work& work) const {
  const DecoderSizes& sizes = tools_.sizes;
  Real* place = logits == nullptr ? tools_.space.logits : logits;
  for (int64_t begin = 0; begin < sizes.tokens(); begin += sizes.head_chunk)
    work(Chunk{begin, std::min(sizes.head_chunk, sizes.tokens() - begin),
               place});
}

template <class Real>
void Head<Real>::norm(const Real* x, const Chunk& chunk) const {
  const int64_t offset = chunk.begin * tools_.sizes.hidden;
  ops<Real>().norm(tools_.space.normed + offset, x + offset,
                   tools_.weights.parameter(tensors_.norm), chunk.count,
                   tools_.sizes.hidden, tools_.epsilon());
}

// Computes the chunk's logits.
template <class Real>
void Head<Real>::fill(const Real* x, const Chunk& chunk) const {
  norm(x, chunk);
  linear().apply(chunk.logits,
                 tools_.space.normed + chunk.begin * tools_.sizes.hidden,
                 chunk.count);
}

template <class Real>
Real* Head<Real>::target(const Chunk& chunk, int64_t i,
                         std::span<const int32_t> sequences) const {
  const int64_t length = tools_.sizes.length;
  const int64_t vocab = tools_.sizes.vocab;
  const int64_t token = chunk.begin + i;
  const int64_t place = token / length * (length + 1) + token % length + 1;
  const int64_t row =
      sequences[static_cast<size_t>(place)] - tools_.tp.rank() * vocab;
  return row >= 0 && row < vocab ? chunk.logits + i * vocab + row : nullptr;
}

template <class Real>
double Head<Real>::losses(const Chunk& chunk,
                          std::span<const int32_t> sequences,
                          int64_t counted) const {
  const Space<Real>& space = tools_.space;
  const int64_t vocab = tools_.sizes.vocab;
  const Real share = 1 / static_cast<Real>(tools_.sizes.tokens());
  Real* targets = space.sums + chunk.count;
  ops<Real>().row_largest(space.largest, chunk.logits, chunk.count, vocab);
  tools_.tp.largest(space.largest, chunk.count, space.ordered,
                    "largest logits");
  for (int64_t i = 0; i < chunk.count; ++i) {
    const Real* logit = target(chunk, i, sequences);
    targets[i] = logit == nullptr ? 0 : *logit;
  }
  ops<Real>().row_exponents(chunk.logits, space.sums, space.largest,
                            chunk.count, vocab);
  tools_.tp.add(space.sums, 2 * chunk.count, "sums of exponents");
  ops<Real>().row_shares(chunk.logits, space.sums, share, chunk.count, vocab);
  double sum = 0;
  for (int64_t i = 0; i < chunk.count; ++i) {
    if (Real* gradient = target(chunk, i, sequences)) *gradient -= share;
    if (chunk.begin + i >= counted) continue;
    sum += std::log(static_cast<double>(space.sums[i])) +
           static_cast<double>(space.largest[i]) -
           static_cast<double>(targets[i]);
  }
  return sum;
}

template <class Real>
double Head<Real>::forward(const Real* x, std::span<const int32_t> sequences,
                           Real* logits, int64_t counted) {
  double sum = 0;
  each_chunk(logits, [&](const Chunk& chunk) {
    fill(x, chunk);
    sum += losses(chunk, sequences, counted);
  });
  return counted > 0 ? sum / static_cast<double>(counted) : 0;
}

template <class Real>
void Head<Real>::logits(const Real* x, Real* logits,
                        const UseLogits<Real>& use) {
  each_chunk(logits, [&](const Chunk& chunk) {
    fill(x, chunk);
    use(chunk.begin,
        {chunk.logits, static_cast<size_t>(chunk.count * tools_.sizes.vocab)});
  });
}

template <class Real>
void Head<Real>::backward(const Real* x, std::span<const int32_t> sequences,
                          Real* logits, Real* gradient, Announce what) {
  const Space<Real>& space = tools_.space;
  const DecoderSizes& sizes = tools_.sizes;
  each_chunk(logits, [&](const Chunk& chunk) {
    const Real* normed = space.normed + chunk.begin * sizes.hidden;
    norm(x, chunk);
    if (logits == nullptr) {
      linear().apply(chunk.logits, normed, chunk.count);
      losses(chunk, sequences, sizes.tokens());
    }
    linear().add_gradient(chunk.logits, normed, chunk.count);
    linear().apply_transposed(space.delta + chunk.begin * sizes.hidden,
                              chunk.logits, chunk.count);
  });
  if (!shared_) announce(tools_.weights, tensors_.head, what);
  const int64_t count = sizes.tokens() * sizes.hidden;
  tools_.tp.add(space.delta, count, "gradient of the head");
  std::fill_n(gradient, count, Real{0});
  ops<Real>().norm_backward(gradient, tools_.weights.gradient(tensors_.norm), x,
                            tools_.weights.parameter(tensors_.norm),
                            space.delta, sizes.tokens(), sizes.hidden,
                            tools_.epsilon());
  announce(tools_.weights, tensors_.norm, what);
}

template class Head<float>;
template class Head<double>;

}  // namespace canzona::model
