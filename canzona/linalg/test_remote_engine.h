// For tests: the engine of such a device (test_remote_device.h) as a GPU's is:
// no call that only issues work waits, and it takes several tensors at once.
//
//   RemoteEngine engine(3);
//   rule->transform(engine, step, batch);   // crashes if it reads directly
//   EXPECT_EQ(engine.waits(), 0);
#pragma once

#include <cstdint>
#include <memory>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_remote_device.h"

namespace canzona::linalg {

class RemoteEngine final : public MinimalEngine {
 public:
  using MinimalEngine::MinimalEngine;

  // The products that it was last told to use, and how many calls used fast
  // ones.
  Products products() const { return products_; }
  int64_t fast_products() const { return fast_products_; }
  void set_products(Products products) override { products_ = products; }

  void wait_for(Engine&) override {}
  void record_in(Event&) override {}
  std::unique_ptr<Notice> make_notice() override {
    return std::make_unique<RemoteNotice>();
  }
  void if_zero(const int32_t* flag,
               const std::function<void()>& work) override {
    bool is_zero = false;
    {
      const Call call(*this, kIssued, flag);
      is_zero = *flag == 0;
    }
    if (is_zero) work();
  }

  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override {
    count_product();
    MinimalEngine::product(c, alpha, a, op_a, b, op_b, beta);
  }
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override {
    count_product();
    MinimalEngine::symmetric_product(c, alpha, a, op_a, beta);
  }

  using Engine::add_diagonal;
  using Engine::axpby;
  using Engine::set_identity;
  void commuting_product(Matrices c, ConstMatrices a,
                         ConstMatrices b) override {
    const Call call(*this, kIssued, c, a, b);
    count_product();
    cpu().commuting_product(c, a, b);
  }
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a, values);
    cpu().eigh(a, values, succeeded);
  }
  void qr(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu().qr(a, succeeded);
  }
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu().cholesky_qr(a, succeeded);
  }
  void cholesky(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu().cholesky(a, succeeded);
  }
  void solve_right_transposed(Matrices b, ConstMatrices l) override {
    const Call call(*this, kIssued, b, l);
    cpu().solve_right_transposed(b, l);
  }
  void norms(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu().norms(a, results);
  }
  void max_abs(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu().max_abs(a, results);
  }
  void traces(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu().traces(a, results);
  }
  void finite(ConstMatrices a, std::span<bool> results) override {
    const Call call(*this, kWaits, a);
    cpu().finite(a, results);
  }
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override {
    const Call call(*this, kIssued, values, a, b);
    cpu().column_dots(values, a, b);
  }
  void line_norms(Matrices norms, ConstMatrices a, Lines lines) override {
    const Call call(*this, kIssued, norms, a);
    cpu().line_norms(norms, a, lines);
  }
  void line_factors(Matrices factors, ConstMatrices norms,
                    const LineFactors& how, Matrices moments,
                    ConstMatrices other) override {
    const Call call(*this, kIssued, factors, norms, moments, other);
    cpu().line_factors(factors, norms, how, moments, other);
  }
  void scale_rows(Matrices to, ConstMatrices from,
                  ConstMatrices factors) override {
    const Call call(*this, kIssued, to, from, factors);
    cpu().scale_rows(to, from, factors);
  }
  void row_sums(const RowSums& sums, ConstMatrices update,
                ConstMatrices weights) override {
    const Call call(*this, kIssued, sums.update, sums.weights, sums.dots,
                    update);
    cpu().row_sums(sums, update, weights);
  }
  void moved_factors(Matrices to, const RowSums& sums, ConstMatrices factors,
                     const Apply& apply, double target, double floor) override {
    const Call call(*this, kIssued, to, sums.update, sums.weights, sums.dots,
                    factors);
    cpu().moved_factors(to, sums, factors, apply, target, floor);
  }
  void convert(Matrices to, ConstMatrices from) override {
    const Call call(*this, kIssued, to, from);
    cpu().convert(to, from);
  }
  void set_identity(Matrices a, std::span<const double> diagonals) override {
    const Call call(*this, kIssued, a);
    cpu().set_identity(a, diagonals);
  }
  void add_diagonal(Matrices a, std::span<const double> values) override {
    const Call call(*this, kIssued, a);
    cpu().add_diagonal(a, values);
  }
  void axpby(Matrices y, std::span<const double> alphas, ConstMatrices x,
             double beta) override {
    const Call call(*this, kIssued, y, x);
    cpu().axpby(y, alphas, x, beta);
  }
  void sort(Orders orders, ConstMatrices values, bool falling) override {
    const Call call(*this, kIssued, orders, values);
    cpu().sort(orders, values, falling);
  }
  void permute_columns(Matrices to, ConstMatrices from,
                       ConstOrders orders) override {
    const Call call(*this, kIssued, to, from, orders);
    cpu().permute_columns(to, from, orders);
  }
  void permute_rows(Matrices to, ConstMatrices from,
                    ConstOrders orders) override {
    const Call call(*this, kIssued, to, from, orders);
    cpu().permute_rows(to, from, orders);
  }
  void raise_values(Matrices values, std::span<const double> floors, bool shift,
                    double exponent) override {
    const Call call(*this, kIssued, values);
    cpu().raise_values(values, floors, shift, exponent);
  }
  void inverse_roots(Matrices to, ConstMatrices from, double scale,
                     double floor) override {
    const Call call(*this, kIssued, to, from);
    cpu().inverse_roots(to, from, scale, floor);
  }
  void scale_columns(Matrices to, ConstMatrices from,
                     ConstMatrices factors) override {
    const Call call(*this, kIssued, to, from, factors);
    cpu().scale_columns(to, from, factors);
  }
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override {
    const Call call(*this, kIssued, a, reference);
    cpu().scale_to_norm(a, reference, epsilon);
  }
  void limit_norms(Matrices a, double norm, double epsilon) override {
    const Call call(*this, kIssued, a);
    cpu().limit_norms(a, norm, epsilon);
  }
  bool all_finite(ConstRun run, int64_t count) override {
    const Call call(*this, kWaits, run);
    return cpu().all_finite(run, count);
  }
  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override {
    const Call call(*this, kIssued, first);
    for (const Stretch& stretch : runs) check(stretch.run);
    cpu().find_nonfinite(first, runs);
  }
  uint32_t largest_bits(std::span<const Stretch> runs) override {
    const Call call(*this, kWaits);
    for (const Stretch& stretch : runs) check(stretch.run);
    return cpu().largest_bits(runs);
  }
  WideSum sum_of_squares(std::span<const Stretch> runs, int exponent) override {
    const Call call(*this, kWaits);
    for (const Stretch& stretch : runs) check(stretch.run);
    return cpu().sum_of_squares(runs, exponent);
  }

  void momentum(const MomentumStage& stage, int64_t count) override {
    const Call call(*this, kIssued, stage.grad, stage.weights, stage.momentum,
                    stage.out);
    cpu().momentum(stage, count);
  }
  void apply(Run weights, ConstRun update, const Apply& apply, int64_t count,
             uint16_t* rounded) override {
    const Call call(*this, kIssued, weights, update, rounded);
    cpu().apply(weights, update, apply, count, rounded);
  }
  void adam(ConstRun grad, Run m, Run v, Run out, const AdamCoefficients& adam,
            int64_t count) override {
    const Call call(*this, kIssued, grad, m, v, out);
    cpu().adam(grad, m, v, out, adam, count);
  }
  void adam_apply(std::span<const AdamRuns> tensors,
                  const AdamCoefficients& adam, const Apply& apply) override {
    const Call call(*this, kIssued);
    for (const AdamRuns& t : tensors) {
      check(t.grad);
      check(t.m);
      check(t.v);
      check(t.weights);
    }
    cpu().adam_apply(tensors, adam, apply);
  }
  void round_weights(uint16_t* to, const float* from, int64_t count) override {
    const Call call(*this, kIssued, to, from);
    cpu().round_weights(to, from, count);
  }
  void split_masters(uint16_t* weights, uint16_t* remainders, const float* from,
                     int64_t count) override {
    const Call call(*this, kIssued, weights, remainders, from);
    cpu().split_masters(weights, remainders, from, count);
  }
  void join_masters(float* to, const uint16_t* weights,
                    const uint16_t* remainders, int64_t count) override {
    const Call call(*this, kIssued, to, weights, remainders);
    cpu().join_masters(to, weights, remainders, count);
  }

 private:
  class RemoteNotice final : public Notice {
   public:
    void post(Engine& engine, const int32_t* number) override {
      auto& remote = static_cast<RemoteEngine&>(engine);
      const Call call(remote, kIssued, number);
      number_ = *number;
    }
    int32_t wait() override { return number_; }

   private:
    int32_t number_ = 0;
  };

  void count_product() {
    if (products_ != Products::kPlain) ++fast_products_;
  }

  Products products_ = Products::kPlain;
  int64_t fast_products_ = 0;
};

}  // namespace canzona::linalg
