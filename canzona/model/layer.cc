#include "canzona/model/layer.h"

#include <algorithm>

#include "canzona/model/ops/table.h"

namespace canzona {

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
                           saved.log_sums);
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

}  // namespace canzona
