#include "canzona/model/experts.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/experts_swiglu.h"

namespace canzona {

template <class Real>
Experts<Real>::Experts(const DecoderConfig& config, const Model& shapes,
                       int64_t layer, const Parallel& parallel, Engine& engine,
                       Weights<Real>& weights)
    : sizes_(expert_sizes(config, parallel)),
      balance_coefficient_(config.balance_coefficient),
      tp_(parallel.tp_size() == 1 ? nullptr : parallel.tp),
      engine_(engine),
      weights_(weights),
      exchange_(sizes_, parallel.ep),
      held_(static_cast<size_t>(sizes_.local())) {
  if (tp_ != nullptr && !std::is_same_v<Real, float>) {
    throw UsageError(cat("experts in fp64 with tp=", parallel.tp_size(),
                         ": sums over tp are of fp32"));
  }
  CANZONA_CHECK(sizes_.ranks == 1 || parallel.ep != nullptr, "no group of the ",
                sizes_.ranks, " ranks with experts");
  find_tensors(shapes, layer, parallel.ep_rank());
}

template <class Real>
void Experts<Real>::find_tensors(const Model& shapes, int64_t layer,
                                 int ep_rank) {
  const std::string folder = cat("model.layers.", layer, ".mlp.");
  const auto find = [&](const std::string& name) {
    const auto found =
        std::ranges::find(shapes.tensors, folder + name, &Tensor::name);
    CANZONA_CHECK(found != shapes.tensors.end(), "no tensor ", folder, name);
    return static_cast<int32_t>(found - shapes.tensors.begin());
  };
  const auto find_mlp = [&](const std::string& name, int64_t ffn) {
    return Mlp{find(name + ".gate_up_proj.weight"),
               find(name + ".down_proj.weight"), ffn};
  };
  router_ = find("gate.weight");
  if (sizes_.shared_ffn > 0)
    shared_ = find_mlp("shared_experts", sizes_.shared_ffn);
  int64_t expert = ep_rank * sizes_.local();
  for (Mlp& mlp : held_) mlp = find_mlp(cat("experts.", expert++), sizes_.ffn);
}

template <class Real>
typename Experts<Real>::Saved Experts<Real>::place_saved(
    ArrayCutter& cutter, const ExpertSizes& sizes) {
  Saved saved;
  saved.routing = place_routing<Real>(cutter, sizes);
  saved.arrivals = cutter.take<int64_t>(sizes.experts);
  saved.rows = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
  saved.gate_up = cutter.take<Real>(sizes.most_rows() * 2 * sizes.ffn);
  saved.shared_gate_up = cutter.take<Real>(sizes.tokens * 2 * sizes.shared_ffn);
  return saved;
}

template <class Real>
typename Experts<Real>::Scratch Experts<Real>::place_scratch(
    ArrayCutter& cutter, const ExpertSizes& sizes) {
  const int64_t act = std::max(sizes.most_rows_of_expert() * sizes.ffn,
                               sizes.tokens * sizes.shared_ffn);
  Scratch scratch;
  scratch.rows = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
  scratch.act = cutter.take<Real>(act);
  scratch.dact = cutter.take<Real>(act);
  scratch.logits = cutter.take<Real>(sizes.tokens * sizes.experts);
  scratch.row_numbers = cutter.take<Real>(sizes.most_rows());
  scratch.dweights = cutter.take<Real>(sizes.pairs());
  scratch.pairs = scratch.rows;
  scratch.pair_numbers = scratch.row_numbers;
  if (sizes.ranks > 1) {
    scratch.spare = cutter.take<Real>(sizes.most_rows() * sizes.hidden);
    scratch.pairs = cutter.take<Real>(sizes.pairs() * sizes.hidden);
    scratch.pair_numbers = cutter.take<Real>(sizes.pairs());
  }
  return scratch;
}

template <class Real>
int64_t Experts<Real>::saved_bytes(const DecoderConfig& config,
                                   const Parallel& parallel) {
  ArrayCutter cutter(nullptr);
  place_saved(cutter, expert_sizes(config, parallel));
  return cutter.used();
}

template <class Real>
int64_t Experts<Real>::scratch_bytes(const DecoderConfig& config,
                                     const Parallel& parallel) {
  ArrayCutter cutter(nullptr);
  place_scratch(cutter, expert_sizes(config, parallel));
  return cutter.used();
}

template <class Real>
void Experts<Real>::gather(const Routing<Real>& routing, const Real* x,
                           Real* pairs) const {
  for (int64_t p = 0; p < sizes_.pairs(); ++p) {
    std::copy_n(x + p / sizes_.choices * sizes_.hidden, sizes_.hidden,
                pairs + routing.places[p] * sizes_.hidden);
  }
}

// Σ_k weight_k · pair_k of every token; without weights the plain sum.
template <class Real>
void Experts<Real>::add_up(const Routing<Real>& routing, const Real* weights,
                           const Real* pairs, Real* y) const {
  std::fill_n(y, sizes_.tokens * sizes_.hidden, Real{0});
  for (int64_t p = 0; p < sizes_.pairs(); ++p) {
    const Real weight = weights == nullptr ? Real{1} : weights[p];
    const Real* from = pairs + routing.places[p] * sizes_.hidden;
    Real* to = y + p / sizes_.choices * sizes_.hidden;
    for (int64_t i = 0; i < sizes_.hidden; ++i) to[i] += weight * from[i];
  }
}

template <class Real>
void Experts<Real>::mlp_forward(const Mlp& mlp, const Real* x, int64_t rows,
                                Real* gate_up, Real* act, Real* y,
                                double beta) {
  if (rows == 0) return;
  const int64_t hidden = sizes_.hidden;
  engine_.product(
      matrices(gate_up, rows, 2 * mlp.ffn), 1.0, matrices(x, rows, hidden),
      Op::kNone, matrices(weights_.parameter(mlp.gate_up), 2 * mlp.ffn, hidden),
      Op::kTranspose, 0.0);
  swiglu(act, gate_up, rows, mlp.ffn);
  engine_.product(matrices(y, rows, hidden), 1.0, matrices(act, rows, mlp.ffn),
                  Op::kNone,
                  matrices(weights_.parameter(mlp.down), hidden, mlp.ffn),
                  Op::kTranspose, beta);
}

template <class Real>
void Experts<Real>::forward(const Real* x, Real* y, std::byte* saved_memory,
                            std::byte* scratch_memory) {
  ArrayCutter saved_cutter(saved_memory), scratch_cutter(scratch_memory);
  const Saved saved = place_saved(saved_cutter, sizes_);
  const Scratch scratch = place_scratch(scratch_cutter, sizes_);
  const int64_t hidden = sizes_.hidden;
  engine_.product(
      matrices(saved.routing.probabilities, sizes_.tokens, sizes_.experts), 1.0,
      matrices(x, sizes_.tokens, hidden), Op::kNone,
      matrices(weights_.parameter(router_), sizes_.experts, hidden),
      Op::kTranspose, 0.0);
  route(sizes_, saved.routing);
  exchange_.tell_counts(saved.routing.counts, saved.arrivals);
  Real* pairs = sizes_.ranks == 1 ? saved.rows : scratch.pairs;
  gather(saved.routing, x, pairs);
  exchange_.to_experts(pairs, saved.rows, hidden, scratch.spare);
  for (size_t e = 0; e < held_.size(); ++e) {
    const auto [begin, count] = exchange_.rows_of(static_cast<int64_t>(e));
    mlp_forward(held_[e], saved.rows + begin * hidden, count,
                saved.gate_up + begin * 2 * sizes_.ffn, scratch.act,
                scratch.rows + begin * hidden, 0.0);
  }
  exchange_.to_tokens(scratch.rows, scratch.pairs, hidden, scratch.spare);
  add_up(saved.routing, saved.routing.weights, scratch.pairs, y);
  if (shared_.ffn > 0) {
    mlp_forward(shared_, x, sizes_.tokens, saved.shared_gate_up, scratch.act, y,
                1.0);
  }
}

template <class Real>
double Experts<Real>::balance_loss(const std::byte* saved_memory) const {
  ArrayCutter cutter(const_cast<std::byte*>(saved_memory));
  return balance_coefficient_ * *place_saved(cutter, sizes_).routing.balance;
}

template class Experts<float>;
template class Experts<double>;

}  // namespace canzona
