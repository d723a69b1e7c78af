#include <algorithm>
#include <array>

#include "canzona/model/experts.h"
#include "canzona/model/ops/table.h"

namespace canzona {
namespace {

// In lanes, so that it is quick and the order of the sum is that of the code.
template <class Real>
Real dot(const Real* a, const Real* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<Real, kLanes> sums{};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l)
      sums[static_cast<size_t>(l)] += a[i + l] * b[i + l];
  Real sum = 0;
  for (int64_t i = whole; i < count; ++i) sum += a[i] * b[i];
  for (const Real lane : sums) sum += lane;
  return sum;
}

template <class Real>
void scale(Real* run, Real factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) run[i] *= factor;
}

// Of an output weight·act·Wᵀ: act and the gradient of gate_up take the weight
// in, which becomes the gradient of itself.
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

// From dy at the tokens to dx of the pairs, both in scratch.pairs, and from the
// pairs' weights to their gradients.
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
  // Whole on every tp rank, so that one alone adds it.
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

}  // namespace canzona
