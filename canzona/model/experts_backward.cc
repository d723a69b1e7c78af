#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "canzona/model/experts.h"
#include "canzona/model/experts_swiglu.h"

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

// Of an output number·act·Wᵀ: act and the gradient of gate_up take the number
// in, which becomes the gradient of itself.
template <class Real>
void weigh_rows(int64_t rows, int64_t ffn, const Real* dact, Real* act,
                Real* dgate_up, Real* numbers) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real number = numbers[r];
    numbers[r] = dot(dact + r * ffn, act + r * ffn, ffn);
    scale(act + r * ffn, number, ffn);
    scale(dgate_up + r * 2 * ffn, number, 2 * ffn);
  }
}

}  // namespace

template <class Real>
void Experts<Real>::mlp_backward(const Mlp& mlp, const Real* x, const Real* dy,
                                 int64_t rows, Real* gate_up,
                                 const Scratch& scratch, Real* numbers,
                                 Real* dx, double beta) {
  if (rows == 0) return;
  const int64_t hidden = sizes_.hidden, ffn = mlp.ffn;
  const ConstMatrices dys = matrices(dy, rows, hidden);
  engine_.product(matrices(scratch.dact, rows, ffn), 1.0, dys, Op::kNone,
                  matrices(weights_.parameter(mlp.down), hidden, ffn),
                  Op::kNone, 0.0);
  std::copy_n(scratch.dact, rows * ffn, scratch.act);
  swiglu_backward(scratch.act, gate_up, rows, ffn);
  if (numbers != nullptr)
    weigh_rows(rows, ffn, scratch.dact, scratch.act, gate_up, numbers);
  engine_.product(matrices(weights_.gradient(mlp.down), hidden, ffn), 1.0, dys,
                  Op::kTranspose, matrices(scratch.act, rows, ffn), Op::kNone,
                  1.0);
  const Matrices dgate_up = matrices(gate_up, rows, 2 * ffn);
  engine_.product(matrices(weights_.gradient(mlp.gate_up), 2 * ffn, hidden),
                  1.0, dgate_up, Op::kTranspose, matrices(x, rows, hidden),
                  Op::kNone, 1.0);
  engine_.product(matrices(dx, rows, hidden), 1.0, dgate_up, Op::kNone,
                  matrices(weights_.parameter(mlp.gate_up), 2 * ffn, hidden),
                  Op::kNone, beta);
}

template <class Real>
void Experts<Real>::report_ready(const Mlp& mlp) {
  weights_.ready(mlp.down);
  weights_.ready(mlp.gate_up);
}

// From dy at the tokens to dx of the pairs, both in scratch.pairs, and the
// gradients of the pairs' weights.
template <class Real>
void Experts<Real>::experts_backward(const Saved& saved, const Scratch& scratch,
                                     bool last) {
  const int64_t hidden = sizes_.hidden;
  exchange_.to_experts(scratch.pairs, scratch.rows, hidden, scratch.spare);
  exchange_.to_experts(scratch.pair_numbers, scratch.row_numbers, 1,
                       scratch.spare);
  for (size_t e = held_.size(); e-- > 0;) {
    const auto [begin, count] = exchange_.rows_of(static_cast<int64_t>(e));
    Real* rows = scratch.rows + begin * hidden;
    mlp_backward(held_[e], saved.rows + begin * hidden, rows, count,
                 saved.gate_up + begin * 2 * sizes_.ffn, scratch,
                 scratch.row_numbers + begin, rows, 0.0);
    if (last) report_ready(held_[e]);
  }
  exchange_.to_tokens(scratch.rows, scratch.pairs, hidden, scratch.spare);
  exchange_.to_tokens(scratch.row_numbers, scratch.pair_numbers, 1,
                      scratch.spare);
}

// In the order of tokens, summed over tp.
template <class Real>
void Experts<Real>::collect_weight_gradients(const Saved& saved,
                                             const Scratch& scratch) {
  for (int64_t p = 0; p < sizes_.pairs(); ++p)
    scratch.dweights[p] = scratch.pair_numbers[saved.routing.places[p]];
  if (tp_ == nullptr) return;
  const auto start = std::chrono::steady_clock::now();
  tp_->all_reduce(Reduction::kFp32Sum,
                  std::as_writable_bytes(std::span(
                      scratch.dweights, static_cast<size_t>(sizes_.pairs()))),
                  {.label = "gradients of routing weights"});
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  tp_seconds_ += time.count();
}

template <class Real>
void Experts<Real>::router_backward(const Real* x, Real* dx, const Saved& saved,
                                    const Scratch& scratch, bool last) {
  const int64_t hidden = sizes_.hidden;
  route_backward(sizes_, balance_coefficient_, saved.routing, scratch.dweights,
                 scratch.logits);
  const ConstMatrices logits =
      matrices(scratch.logits, sizes_.tokens, sizes_.experts);
  engine_.product(matrices(weights_.gradient(router_), sizes_.experts, hidden),
                  1.0, logits, Op::kTranspose,
                  matrices(x, sizes_.tokens, hidden), Op::kNone, 1.0);
  if (last) weights_.ready(router_);
  // Whole on every tp rank, so that one alone adds it.
  if (tp_ != nullptr && tp_->rank() != 0) return;
  engine_.product(matrices(dx, sizes_.tokens, hidden), 1.0, logits, Op::kNone,
                  matrices(weights_.parameter(router_), sizes_.experts, hidden),
                  Op::kNone, 1.0);
}

template <class Real>
void Experts<Real>::backward(const Real* x, const Real* dy, Real* dx,
                             std::byte* saved_memory, std::byte* scratch_memory,
                             bool last) {
  ArrayCutter saved_cutter(saved_memory), scratch_cutter(scratch_memory);
  const Saved saved = place_saved(saved_cutter, sizes_);
  const Scratch scratch = place_scratch(scratch_cutter, sizes_);
  exchange_.use_counts(saved.routing.counts, saved.arrivals);
  gather(saved.routing, dy, scratch.pairs);
  for (int64_t p = 0; p < sizes_.pairs(); ++p)
    scratch.pair_numbers[saved.routing.places[p]] = saved.routing.weights[p];
  experts_backward(saved, scratch, last);
  add_up(saved.routing, nullptr, scratch.pairs, dx);
  if (shared_.ffn > 0) {
    mlp_backward(shared_, x, dy, sizes_.tokens, saved.shared_gate_up, scratch,
                 nullptr, dx, 1.0);
    if (last) report_ready(shared_);
  }
  collect_weight_gradients(saved, scratch);
  router_backward(x, dx, saved, scratch, last);
}

template void Experts<float>::backward(const float*, const float*, float*,
                                       std::byte*, std::byte*, bool);
template void Experts<double>::backward(const double*, const double*, double*,
                                        std::byte*, std::byte*, bool);

}  // namespace canzona
