#include "canzona/model/experts.h"

#include <algorithm>
#include <array>
#include <string>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/model/ops/table.h"

namespace canzona::model {

template <class Real>
int64_t Mlp<Real>::saved_bytes(const DecoderSizes& sizes) {
  Cutter count(nullptr);
  count.take<Real>(sizes.tokens(), 2 * sizes.ffn);
  return count.bytes();
}

template <class Real>
int64_t Mlp<Real>::scratch_bytes(const DecoderSizes& sizes) {
  Cutter count(nullptr);
  count.take<Real>(sizes.tokens(), sizes.ffn);
  return count.bytes();
}

template <class Real>
Linear<Real> Mlp<Real>::gate_up() const {
  return {engine_, weights_, tensors_.gate_up, 2 * sizes_.ffn, sizes_.hidden};
}

template <class Real>
Linear<Real> Mlp<Real>::down() const {
  return {engine_, weights_, tensors_.down, sizes_.hidden, sizes_.ffn};
}

template <class Real>
void Mlp<Real>::forward(const Real* x, Real* y, std::byte* saved,
                        std::byte* scratch) {
  auto* both = reinterpret_cast<Real*>(saved);
  auto* act = reinterpret_cast<Real*>(scratch);
  const int64_t tokens = sizes_.tokens();
  const Linear<Real> first = gate_up();
  const Linear<Real> second = down();
  first.apply(both, x, tokens);
  if (y == nullptr) return;
  ops<Real>().swiglu(act, both, tokens, sizes_.ffn);
  second.apply(y, act, tokens);
}

template <class Real>
void Mlp<Real>::backward(const Real* x, const Real* dy, Real* dx,
                         std::byte* saved, std::byte* scratch, Announce what) {
  auto* both = reinterpret_cast<Real*>(saved);
  auto* act = reinterpret_cast<Real*>(scratch);
  const int64_t tokens = sizes_.tokens();
  const Linear<Real> first = gate_up();
  const Linear<Real> second = down();
  second.apply_transposed(act, dy, tokens);
  ops<Real>().swiglu_backward(act, both, tokens, sizes_.ffn);
  second.add_gradient(dy, act, tokens);
  announce(weights_, tensors_.down, what);
  first.add_gradient(both, x, tokens);
  announce(weights_, tensors_.gate_up, what);
  first.apply_transposed(dx, both, tokens);
}

template class Mlp<float>;
template class Mlp<double>;

namespace {

// The shared experts are a dense block of their total width.
DecoderSizes shared_sizes(const DecoderConfig& config,
                          const Parallel& parallel) {
  DecoderSizes sizes = decoder_sizes(config, parallel);
  sizes.ffn = expert_sizes(config, parallel).shared_ffn;
  return sizes;
}

}  // namespace

template <class Real>
Experts<Real>::Experts(const DecoderConfig& config, const Model& shapes,
                       int64_t layer, const Parallel& parallel, Engine& engine,
                       Weights<Real>& weights)
    : config_(config),
      parallel_(parallel),
      sizes_(expert_sizes(config, parallel)),
      engine_(engine),
      weights_(weights),
      tp_(parallel.tp),
      exchange_(sizes_, parallel.ep),
      held_(static_cast<size_t>(sizes_.local())) {
  find_tensors(shapes, layer);
}

template <class Real>
void Experts<Real>::find_tensors(const Model& shapes, int64_t layer) {
  const std::string folder = cat("model.layers.", layer, ".mlp.");
  const auto find = [&](const std::string& name) {
    const auto found =
        std::ranges::find(shapes.tensors, folder + name, &Tensor::name);
    CANZONA_CHECK(found != shapes.tensors.end(), "no tensor ", folder, name);
    return static_cast<int32_t>(found - shapes.tensors.begin());
  };
  router_ = find("gate.weight");
  int64_t number = parallel_.ep_rank() * sizes_.local();
  for (ExpertTensors& expert : held_) {
    const std::string name = cat("experts.", number++);
    expert = {find(name + ".gate_up_proj.weight"),
              find(name + ".down_proj.weight")};
  }
  if (sizes_.shared_ffn == 0) return;
  LayerTensors tensors;
  tensors.gate_up = find("shared_experts.gate_up_proj.weight");
  tensors.down = find("shared_experts.down_proj.weight");
  shared_.emplace(shared_sizes(config_, parallel_), tensors, engine_, weights_);
}

template <class Real>
typename Experts<Real>::Saved Experts<Real>::take_saved(
    const DecoderConfig& config, const Parallel& parallel, Cutter& cutter) {
  const ExpertSizes sizes = expert_sizes(config, parallel);
  Saved saved;
  saved.routing = take_routing<Real>(cutter, sizes);
  saved.arrivals = cutter.take<int64_t>(sizes.experts);
  saved.rows = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
  saved.gate_up = cutter.take<Real>(sizes.most_rows() * 2 * sizes.ffn);
  saved.shared = cutter.take<std::byte>(
      Mlp<Real>::saved_bytes(shared_sizes(config, parallel)));
  return saved;
}

template <class Real>
typename Experts<Real>::Scratch Experts<Real>::take_scratch(
    const DecoderConfig& config, const Parallel& parallel, Cutter& cutter) {
  const ExpertSizes sizes = expert_sizes(config, parallel);
  const int64_t act = sizes.most_rows_of_expert() * sizes.ffn;
  Scratch scratch;
  scratch.rows = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
  scratch.act = cutter.take<Real>(act);
  scratch.dact = cutter.take<Real>(act);
  scratch.row_weights = cutter.take<Real>(sizes.most_rows());
  scratch.dweights = cutter.take<Real>(sizes.pairs());
  scratch.dlogits = cutter.take<Real>(sizes.tokens * sizes.experts);
  scratch.shared = cutter.take<std::byte>(
      Mlp<Real>::scratch_bytes(shared_sizes(config, parallel)));
  scratch.pairs = scratch.rows;
  scratch.pair_weights = scratch.row_weights;
  if (sizes.ranks == 1) return scratch;
  scratch.spare = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
  scratch.pairs = cutter.take<Real>(sizes.pairs() * sizes.hidden);
  scratch.pair_weights = cutter.take<Real>(sizes.pairs());
  return scratch;
}

template <class Real>
int64_t Experts<Real>::saved_bytes(const DecoderConfig& config,
                                   const Parallel& parallel) {
  Cutter cutter(nullptr);
  take_saved(config, parallel, cutter);
  return cutter.bytes();
}

template <class Real>
int64_t Experts<Real>::scratch_bytes(const DecoderConfig& config,
                                     const Parallel& parallel) {
  Cutter cutter(nullptr);
  take_scratch(config, parallel, cutter);
  return cutter.bytes();
}

template <class Real>
typename Experts<Real>::Share Experts<Real>::share_of(
    size_t expert, const Saved& saved, const Scratch& scratch) const {
  const auto [begin, count] = exchange_.rows_of(static_cast<int64_t>(expert));
  const ExpertTensors& tensors = held_[expert];
  const int64_t hidden = sizes_.hidden, ffn = sizes_.ffn;
  return {.gate_up = linear(tensors.gate_up, 2 * ffn, hidden),
          .down = linear(tensors.down, hidden, ffn),
          .count = count,
          .x = saved.rows + begin * hidden,
          .gate_up_rows = saved.gate_up + begin * 2 * ffn,
          .rows = scratch.rows + begin * hidden,
          .weights = scratch.row_weights + begin};
}

template <class Real>
void Experts<Real>::gather(const Routing<Real>& routing, const Real* x,
                           Real* pairs) const {
  for (int64_t p = 0; p < sizes_.pairs(); ++p) {
    std::copy_n(x + p / sizes_.choices * sizes_.hidden, sizes_.hidden,
                pairs + routing.places[p] * sizes_.hidden);
  }
}

template <class Real>
void Experts<Real>::add_up(const Routing<Real>& routing, const Real* weights,
                           const Real* pairs, Real* y) const {
  for (int64_t p = 0; p < sizes_.pairs(); ++p) {
    const Real weight = weights == nullptr ? Real{1} : weights[p];
    const Real* from = pairs + routing.places[p] * sizes_.hidden;
    Real* to = y + p / sizes_.choices * sizes_.hidden;
    for (int64_t i = 0; i < sizes_.hidden; ++i) to[i] += weight * from[i];
  }
}

template <class Real>
void Experts<Real>::send_inputs(const Real* x, const Saved& saved,
                                const Scratch& scratch) {
  router().apply(saved.routing.probabilities, x, sizes_.tokens);
  route(sizes_, saved.routing);
  exchange_.tell_counts(saved.routing.counts, saved.arrivals);
  Real* pairs = sizes_.ranks == 1 ? saved.rows : scratch.pairs;
  gather(saved.routing, x, pairs);
  exchange_.to_experts(pairs, saved.rows, sizes_.hidden, scratch.spare);
}

template <class Real>
void Experts<Real>::forward(const Real* x, Real* y, std::byte* saved_memory,
                            std::byte* scratch_memory) {
  Cutter saved_cutter(saved_memory), scratch_cutter(scratch_memory);
  const Saved saved = take_saved(config_, parallel_, saved_cutter);
  const Scratch scratch = take_scratch(config_, parallel_, scratch_cutter);
  send_inputs(x, saved, scratch);
  for (size_t e = 0; e < held_.size(); ++e) {
    const Share share = share_of(e, saved, scratch);
    if (share.count == 0) continue;
    share.gate_up.apply(share.gate_up_rows, share.x, share.count);
    if (y == nullptr) continue;
    ops<Real>().swiglu(scratch.act, share.gate_up_rows, share.count,
                       sizes_.ffn);
    share.down.apply(share.rows, scratch.act, share.count);
  }
  if (shared_) shared_->forward(x, y, saved.shared, scratch.shared);
  if (y == nullptr) return;
  if (!shared_) std::fill_n(y, sizes_.tokens * sizes_.hidden, Real{0});
  exchange_.to_tokens(scratch.rows, scratch.pairs, sizes_.hidden,
                      scratch.spare);
  add_up(saved.routing, saved.routing.weights, scratch.pairs, y);
}

template <class Real>
double Experts<Real>::balance_loss(const std::byte* saved_memory) const {
  Cutter cutter(const_cast<std::byte*>(saved_memory));
  const Saved saved = take_saved(config_, parallel_, cutter);
  return config_.balance_coefficient * *saved.routing.balance;
}

template class Experts<float>;
template class Experts<double>;

namespace {

// Sixteen partial sums are fast, and make the order of additions explicit.
template <class Real>
Real dot(const Real* a, const Real* b, int64_t count) {
  constexpr int64_t kSums = 16;
  std::array<Real, kSums> sums{};
  const int64_t whole = count / kSums * kSums;
  for (int64_t i = 0; i < whole; i += kSums)
    for (int64_t s = 0; s < kSums; ++s)
      sums[static_cast<size_t>(s)] += a[i + s] * b[i + s];
  Real sum = 0;
  for (int64_t i = whole; i < count; ++i) sum += a[i] * b[i];
  for (const Real partial : sums) sum += partial;
  return sum;
}

template <class Real>
void scale(Real* run, Real factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) run[i] *= factor;
}

// For an output weight·act·Wᵀ: multiplies act and the gradient of gate_up by
// the weight, and replaces the weight by its gradient.
template <class Real>
void weigh_rows(int64_t rows, int64_t ffn, const Real* dact, Real* act,
                Real* dgate_up, Real* weights) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real weight = weights[r];
    weights[r] = dot(dact + r * ffn, act + r * ffn, ffn);
    scale(act + r * ffn, weight, ffn);
    scale(dgate_up + r * 2 * ffn, weight, 2 * ffn);
  }
}

}  // namespace

template <class Real>
void Experts<Real>::expert_backward(const Share& share, const Scratch& scratch,
                                    Announce what) const {
  const int64_t count = share.count, ffn = sizes_.ffn;
  share.down.apply_transposed(scratch.dact, share.rows, count);
  std::copy_n(scratch.dact, count * ffn, scratch.act);
  ops<Real>().swiglu_backward(scratch.act, share.gate_up_rows, count, ffn);
  weigh_rows(count, ffn, scratch.dact, scratch.act, share.gate_up_rows,
             share.weights);
  share.down.add_gradient(share.rows, scratch.act, count);
  announce(weights_, share.down.tensor, what);
  share.gate_up.add_gradient(share.gate_up_rows, share.x, count);
  announce(weights_, share.gate_up.tensor, what);
  share.gate_up.apply_transposed(share.rows, share.gate_up_rows, count);
}

// Goes from dy at the tokens to dx of the pairs, both in scratch.pairs, and
// from the pairs' weights to their gradients.
template <class Real>
void Experts<Real>::experts_backward(const Saved& saved, const Scratch& scratch,
                                     Announce what) {
  exchange_.to_experts(scratch.pairs, scratch.rows, sizes_.hidden,
                       scratch.spare);
  exchange_.to_experts(scratch.pair_weights, scratch.row_weights, 1,
                       scratch.spare);
  for (size_t e = held_.size(); e-- > 0;) {
    const Share share = share_of(e, saved, scratch);
    if (share.count > 0) {
      expert_backward(share, scratch, what);
    } else {
      announce(weights_, share.down.tensor, what);
      announce(weights_, share.gate_up.tensor, what);
    }
  }
  exchange_.to_tokens(scratch.rows, scratch.pairs, sizes_.hidden,
                      scratch.spare);
  exchange_.to_tokens(scratch.row_weights, scratch.pair_weights, 1,
                      scratch.spare);
}

template <class Real>
void Experts<Real>::router_backward(const Real* x, Real* dx, const Saved& saved,
                                    const Scratch& scratch, Announce what) {
  for (int64_t p = 0; p < sizes_.pairs(); ++p)
    scratch.dweights[p] = scratch.pair_weights[saved.routing.places[p]];
  tp_.add(scratch.dweights, sizes_.pairs(), "gradients of routing weights");
  route_backward(sizes_, config_.balance_coefficient, saved.routing,
                 scratch.dweights, scratch.dlogits);
  router().add_gradient(scratch.dlogits, x, sizes_.tokens);
  announce(weights_, router_, what);
  // It is complete on every tp rank, so only one adds it.
  if (tp_.rank() != 0) return;
  engine_.product(
      matrices(dx, sizes_.tokens, sizes_.hidden), 1,
      matrices(scratch.dlogits, sizes_.tokens, sizes_.experts), Op::kNone,
      matrices(weights_.parameter(router_), sizes_.experts, sizes_.hidden),
      Op::kNone, 1);
}

template <class Real>
void Experts<Real>::backward(const Real* x, const Real* dy, Real* dx,
                             std::byte* saved_memory, std::byte* scratch_memory,
                             Announce what) {
  Cutter saved_cutter(saved_memory), scratch_cutter(scratch_memory);
  const Saved saved = take_saved(config_, parallel_, saved_cutter);
  const Scratch scratch = take_scratch(config_, parallel_, scratch_cutter);
  exchange_.use_counts(saved.routing.counts, saved.arrivals);
  gather(saved.routing, dy, scratch.pairs);
  for (int64_t p = 0; p < sizes_.pairs(); ++p)
    scratch.pair_weights[saved.routing.places[p]] = saved.routing.weights[p];
  experts_backward(saved, scratch, what);
  if (shared_)
    shared_->backward(x, dy, dx, saved.shared, scratch.shared, what);
  else
    std::fill_n(dx, sizes_.tokens * sizes_.hidden, Real{0});
  add_up(saved.routing, nullptr, scratch.pairs, dx);
  router_backward(x, dx, saved, scratch, what);
}

template void Experts<float>::backward(const float*, const float*, float*,
                                       std::byte*, std::byte*, Announce);
template void Experts<double>::backward(const double*, const double*, double*,
                                        std::byte*, std::byte*, Announce);

}  // namespace canzona::model
