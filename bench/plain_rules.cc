#include "bench/plain_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace canzona::bench {
namespace {

constexpr double kBeta1 = 0.95;
constexpr double kBeta2 = 0.95;
constexpr float kEpsilon = 1e-8F;

std::vector<float> zeros(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count));
}

Matrices square(std::vector<float>& a, int64_t d) {
  return matrices(a.data(), d, d);
}
ConstMatrices square(const std::vector<float>& a, int64_t d) {
  return matrices(a.data(), d, d);
}

}  // namespace

PlainSoap::PlainSoap(int64_t rows, int64_t cols, int period)
    : m_(rows),
      n_(cols),
      period_(period),
      left_(zeros(m_ * m_)),
      right_(zeros(n_ * n_)),
      left_basis_(left_),
      right_basis_(right_),
      moment_(zeros(m_ * n_)),
      second_(moment_),
      rotated_(moment_),
      update_(moment_),
      scratch_(moment_) {}

void PlainSoap::add_statistics(Engine& engine, const float* grad, double keep) {
  const ConstMatrices g = matrices(grad, m_, n_);
  engine.product(square(left_, m_), 1 - kBeta2, g, Op::kNone, g, Op::kTranspose,
                 keep);
  engine.product(square(right_, n_), 1 - kBeta2, g, Op::kTranspose, g,
                 Op::kNone, keep);
}

void PlainSoap::begin(Engine& engine, const float* grad) {
  add_statistics(engine, grad, 0);
  const auto decompose = [&](std::vector<float>& basis,
                             const std::vector<float>& factor, int64_t d) {
    basis = factor;
    std::vector<float> values = zeros(d);
    bool ok[1] = {};
    engine.eigh(square(basis, d), matrices(values.data(), 1, d), ok);
    for (int64_t i = 0; i < d; ++i)
      std::reverse(basis.begin() + i * d, basis.begin() + (i + 1) * d);
  };
  decompose(left_basis_, left_, m_);
  decompose(right_basis_, right_, n_);
}

void PlainSoap::rotate(Engine& engine, std::vector<float>& to,
                       const std::vector<float>& from, bool into) {
  const Op left = into ? Op::kTranspose : Op::kNone;
  const Op right = into ? Op::kNone : Op::kTranspose;
  engine.product(matrices(scratch_.data(), m_, n_), 1, square(left_basis_, m_),
                 left, matrices(from.data(), m_, n_), Op::kNone, 0);
  engine.product(matrices(to.data(), m_, n_), 1,
                 matrices(std::as_const(scratch_).data(), m_, n_), Op::kNone,
                 square(right_basis_, n_), right, 0);
}

void PlainSoap::refresh(Engine& engine, std::vector<float>& basis,
                        const std::vector<float>& factor, int64_t d,
                        bool left) {
  std::vector<float> product = zeros(d * d), estimate = zeros(d * d);
  engine.product(square(product, d), 1, square(factor, d), Op::kNone,
                 square(std::as_const(basis), d), Op::kNone, 0);
  engine.product(square(estimate, d), 1, square(std::as_const(basis), d),
                 Op::kTranspose, square(std::as_const(product), d), Op::kNone,
                 0);
  std::vector<int64_t> order(static_cast<size_t>(d));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return estimate[static_cast<size_t>(a * (d + 1))] >
           estimate[static_cast<size_t>(b * (d + 1))];
  });
  const Matrices second = matrices(second_.data(), m_, n_);
  const Matrices old = matrices(scratch_.data(), m_, n_);
  engine.copy(old, second);
  left ? engine.permute_rows(second, old, order)
       : engine.permute_columns(second, old, order);
  engine.permute_columns(square(estimate, d), square(std::as_const(basis), d),
                         order);
  engine.product(square(basis, d), 1, square(factor, d), Op::kNone,
                 square(std::as_const(estimate), d), Op::kNone, 0);
  bool ok[1] = {};
  engine.qr(square(basis, d), ok);
}

void PlainSoap::step(Engine& engine, float* weights, const float* grad,
                     double rate) {
  if (++steps_ == 0) return begin(engine, grad);
  const std::vector<float> g(grad, grad + m_ * n_);
  rotate(engine, rotated_, g, true);
  for (size_t i = 0; i < rotated_.size(); ++i) {
    const float x = rotated_[i];
    moment_[i] = static_cast<float>(kBeta1) * moment_[i] +
                 static_cast<float>(1 - kBeta1) * x;
    second_[i] = static_cast<float>(kBeta2) * second_[i] +
                 static_cast<float>(1 - kBeta2) * x * x;
    update_[i] = moment_[i] / (std::sqrt(second_[i]) + kEpsilon);
  }
  rotate(engine, rotated_, update_, false);
  const auto t = static_cast<double>(steps_);
  const auto size = static_cast<float>(
      rate * std::sqrt(1 - std::pow(kBeta2, t)) / (1 - std::pow(kBeta1, t)));
  for (size_t i = 0; i < rotated_.size(); ++i) weights[i] -= size * rotated_[i];
  rotate(engine, update_, moment_, false);
  add_statistics(engine, grad, kBeta2);
  if (steps_ % period_ == 0) {
    refresh(engine, left_basis_, left_, m_, true);
    refresh(engine, right_basis_, right_, n_, false);
  }
  rotate(engine, moment_, update_, true);
}

PlainShampoo::PlainShampoo(int64_t rows, int64_t cols, int period)
    : m_(rows),
      n_(cols),
      period_(period),
      left_(zeros(m_ * m_)),
      right_(zeros(n_ * n_)),
      left_root_(left_),
      right_root_(right_),
      moment_(zeros(m_ * n_)),
      second_(moment_),
      graft_(moment_),
      update_(moment_),
      scratch_(moment_) {}

void PlainShampoo::refresh(Engine& engine, std::vector<float>& root,
                           const std::vector<float>& factor, int64_t d,
                           double correction) {
  std::vector<float> vectors = factor, values = zeros(d), scaled = factor;
  for (float& x : vectors) x = static_cast<float>(x / correction);
  bool ok[1] = {};
  engine.eigh(square(vectors, d), matrices(values.data(), 1, d), ok);
  for (int64_t i = 0; i < d; ++i)
    for (int64_t j = 0; j < d; ++j) {
      const float value =
          std::max(values[static_cast<size_t>(j)], 0.0F) + 1e-6F;
      scaled[static_cast<size_t>(i * d + j)] =
          vectors[static_cast<size_t>(i * d + j)] * std::pow(value, -0.25F);
    }
  engine.product(square(root, d), 1, square(std::as_const(scaled), d),
                 Op::kNone, square(std::as_const(vectors), d), Op::kTranspose,
                 0);
}

void PlainShampoo::step(Engine& engine, float* weights, const float* grad,
                        double rate) {
  ++steps_;
  const ConstMatrices g = matrices(grad, m_, n_);
  engine.product(square(left_, m_), 1 - kBeta2, g, Op::kNone, g, Op::kTranspose,
                 kBeta2);
  engine.product(square(right_, n_), 1 - kBeta2, g, Op::kTranspose, g,
                 Op::kNone, kBeta2);
  const auto t = static_cast<double>(steps_);
  if (steps_ == 1 || steps_ % period_ == 0) {
    const double correction = 1 - std::pow(kBeta2, t);
    refresh(engine, left_root_, left_, m_, correction);
    refresh(engine, right_root_, right_, n_, correction);
  }
  const auto c1 = static_cast<float>(1 - std::pow(kBeta1, t));
  const auto c2 = static_cast<float>(1 - std::pow(kBeta2, t));
  for (size_t i = 0; i < moment_.size(); ++i) {
    moment_[i] = static_cast<float>(kBeta1) * moment_[i] +
                 static_cast<float>(1 - kBeta1) * grad[i];
    second_[i] = static_cast<float>(kBeta2) * second_[i] +
                 static_cast<float>(1 - kBeta2) * grad[i] * grad[i];
    update_[i] = moment_[i] / c1;
    graft_[i] = update_[i] / (std::sqrt(second_[i] / c2) + kEpsilon);
  }
  engine.product(matrices(scratch_.data(), m_, n_), 1,
                 square(std::as_const(left_root_), m_), Op::kNone,
                 matrices(std::as_const(update_).data(), m_, n_), Op::kNone, 0);
  engine.product(matrices(update_.data(), m_, n_), 1,
                 matrices(std::as_const(scratch_).data(), m_, n_), Op::kNone,
                 square(std::as_const(right_root_), n_), Op::kNone, 0);
  double lengths[2] = {};
  engine.norms(matrices(std::as_const(graft_).data(), m_, n_), {lengths, 1});
  engine.norms(matrices(std::as_const(update_).data(), m_, n_),
               {lengths + 1, 1});
  const auto size =
      static_cast<float>(rate * lengths[0] / (lengths[1] + 1e-16));
  for (size_t i = 0; i < update_.size(); ++i) weights[i] -= size * update_[i];
}

}  // namespace canzona::bench
