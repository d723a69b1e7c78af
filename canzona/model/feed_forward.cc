#include "canzona/model/feed_forward.h"

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

}  // namespace canzona
