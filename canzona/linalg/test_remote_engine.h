// A CPU engine that behaves like one of another device, for tests: nobody else
// can reach its memory (test_remote_memory.h), it refuses memory that is not
// its own, takes several tensors at once, and counts the calls that a program
// has to wait for.
//
//   RemoteEngine engine(3);
//   rule->transform(engine, step, batch);   // dies if it reads by itself
//   EXPECT_EQ(engine.waits(), 0);
//
// Its bits are those of a CPU engine. Algebras take one matrix at a time, so a
// rule that uses them needs a width of 1.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_remote_algebra.h"
#include "canzona/linalg/test_remote_memory.h"

namespace canzona {

struct RemoteMemoryHolder {
  RemoteMemory remote_;
};

class RemoteEngine final : private RemoteMemoryHolder, public Engine {
 public:
  explicit RemoteEngine(int64_t width) : Engine(remote_), width_(width) {}

  int64_t waits() const { return waits_; }
  // How it was last told to multiply, and how many calls were to be fast.
  Products products() const { return products_; }
  int64_t fast_products() const { return fast_products_; }
  void set_products(Products products) override { products_ = products; }

  std::string kind() const override { return "remote"; }
  std::string describe() const override { return cpu_->describe(); }
  int64_t batch_width() const override { return width_; }
  Algebra& algebra(DType dtype) override {
    auto& own = algebras_[static_cast<size_t>(dtype)];
    if (!own)
      own = std::make_unique<RemoteAlgebra>(remote_, cpu_->algebra(dtype));
    return *own;
  }

  void upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    const Call call(*this, kWaits, to);
    cpu_->upload(to, from, bytes);
  }
  void download(std::byte* to, const std::byte* from, int64_t bytes) override {
    const Call call(*this, kWaits, from);
    cpu_->download(to, from, bytes);
  }
  void set_zero(std::byte* to, int64_t bytes) override {
    const Call call(*this, kIssued, to);
    cpu_->set_zero(to, bytes);
  }
  void wait_for(Engine&) override {}
  std::unique_ptr<Event> record() override { return cpu_->record(); }
  std::unique_ptr<Notice> make_notice() override {
    return std::make_unique<RemoteNotice>();
  }
  void synchronize() override { ++waits_; }
  void if_zero(const int32_t* flag,
               const std::function<void()>& work) override {
    bool is_zero = false;
    {
      const Call call(*this, kIssued, flag);
      is_zero = *flag == 0;
    }
    if (is_zero) work();
  }

  using Engine::add_diagonal;
  using Engine::axpby;
  using Engine::set_identity;
  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override {
    const Call call(*this, kIssued, c, a, b);
    if (products_ != Products::kPlain) ++fast_products_;
    cpu_->product(c, alpha, a, op_a, b, op_b, beta);
  }
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override {
    const Call call(*this, kIssued, c, a);
    if (products_ != Products::kPlain) ++fast_products_;
    cpu_->symmetric_product(c, alpha, a, op_a, beta);
  }
  void commuting_product(Matrices c, ConstMatrices a,
                         ConstMatrices b) override {
    const Call call(*this, kIssued, c, a, b);
    if (products_ != Products::kPlain) ++fast_products_;
    cpu_->commuting_product(c, a, b);
  }
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a, values);
    cpu_->eigh(a, values, succeeded);
  }
  void qr(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu_->qr(a, succeeded);
  }
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu_->cholesky_qr(a, succeeded);
  }
  void cholesky(Matrices a, std::span<bool> succeeded) override {
    const Call call(*this, kWaits, a);
    cpu_->cholesky(a, succeeded);
  }
  void solve_right_transposed(Matrices b, ConstMatrices l) override {
    const Call call(*this, kIssued, b, l);
    cpu_->solve_right_transposed(b, l);
  }
  void norms(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu_->norms(a, results);
  }
  void max_abs(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu_->max_abs(a, results);
  }
  void traces(ConstMatrices a, std::span<double> results) override {
    const Call call(*this, kWaits, a);
    cpu_->traces(a, results);
  }
  void finite(ConstMatrices a, std::span<bool> results) override {
    const Call call(*this, kWaits, a);
    cpu_->finite(a, results);
  }
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override {
    const Call call(*this, kIssued, values, a, b);
    cpu_->column_dots(values, a, b);
  }
  void copy(Matrices to, ConstMatrices from) override {
    const Call call(*this, kIssued, to, from);
    cpu_->copy(to, from);
  }
  void convert(Matrices to, ConstMatrices from) override {
    const Call call(*this, kIssued, to, from);
    cpu_->convert(to, from);
  }
  void set_identity(Matrices a, std::span<const double> diagonals) override {
    const Call call(*this, kIssued, a);
    cpu_->set_identity(a, diagonals);
  }
  void add_diagonal(Matrices a, std::span<const double> values) override {
    const Call call(*this, kIssued, a);
    cpu_->add_diagonal(a, values);
  }
  void axpby(Matrices y, std::span<const double> alphas, ConstMatrices x,
             double beta) override {
    const Call call(*this, kIssued, y, x);
    cpu_->axpby(y, alphas, x, beta);
  }
  void sort(Orders orders, ConstMatrices values, bool falling) override {
    const Call call(*this, kIssued, orders, values);
    cpu_->sort(orders, values, falling);
  }
  void permute_columns(Matrices to, ConstMatrices from,
                       ConstOrders orders) override {
    const Call call(*this, kIssued, to, from, orders);
    cpu_->permute_columns(to, from, orders);
  }
  void permute_rows(Matrices to, ConstMatrices from,
                    ConstOrders orders) override {
    const Call call(*this, kIssued, to, from, orders);
    cpu_->permute_rows(to, from, orders);
  }
  void raise_values(Matrices values, std::span<const double> floors, bool shift,
                    double exponent) override {
    const Call call(*this, kIssued, values);
    cpu_->raise_values(values, floors, shift, exponent);
  }
  void inverse_roots(Matrices to, ConstMatrices from, double scale,
                     double floor) override {
    const Call call(*this, kIssued, to, from);
    cpu_->inverse_roots(to, from, scale, floor);
  }
  void scale_columns(Matrices to, ConstMatrices from,
                     ConstMatrices factors) override {
    const Call call(*this, kIssued, to, from, factors);
    cpu_->scale_columns(to, from, factors);
  }
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override {
    const Call call(*this, kIssued, a, reference);
    cpu_->scale_to_norm(a, reference, epsilon);
  }
  void limit_norms(Matrices a, double norm, double epsilon) override {
    const Call call(*this, kIssued, a);
    cpu_->limit_norms(a, norm, epsilon);
  }
  bool all_finite(ConstRun run, int64_t count) override {
    const Call call(*this, kWaits, run);
    return cpu_->all_finite(run, count);
  }
  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override {
    const Call call(*this, kIssued, first);
    for (const Stretch& stretch : runs) check(stretch.run);
    cpu_->find_nonfinite(first, runs);
  }
  uint32_t largest_bits(std::span<const Stretch> runs) override {
    const Call call(*this, kWaits);
    for (const Stretch& stretch : runs) check(stretch.run);
    return cpu_->largest_bits(runs);
  }
  WideSum sum_of_squares(std::span<const Stretch> runs, int exponent) override {
    const Call call(*this, kWaits);
    for (const Stretch& stretch : runs) check(stretch.run);
    return cpu_->sum_of_squares(runs, exponent);
  }

  void momentum(const MomentumStage& stage, int64_t count) override {
    const Call call(*this, kIssued, stage.grad, stage.weights, stage.momentum,
                    stage.out);
    cpu_->momentum(stage, count);
  }
  void apply(Run weights, ConstRun update, const Apply& apply, int64_t count,
             uint16_t* rounded) override {
    const Call call(*this, kIssued, weights, update, rounded);
    cpu_->apply(weights, update, apply, count, rounded);
  }
  void adam(ConstRun grad, Run m, Run v, Run out, const AdamCoefficients& adam,
            int64_t count) override {
    const Call call(*this, kIssued, grad, m, v, out);
    cpu_->adam(grad, m, v, out, adam, count);
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
    cpu_->adam_apply(tensors, adam, apply);
  }
  void round_to_bf16(uint16_t* to, const float* from, int64_t count) override {
    const Call call(*this, kIssued, to, from);
    cpu_->round_to_bf16(to, from, count);
  }

 private:
  static constexpr bool kWaits = true;
  static constexpr bool kIssued = false;

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

  // Opens the memory for one call, whose operands must lie in it.
  class Call {
   public:
    template <class... Views>
    Call(RemoteEngine& engine, bool waits, const Views&... views)
        : access_(engine.remote_) {
      if (waits) ++engine.waits_;
      (engine.check(views), ...);
    }

   private:
    RemoteMemory::Access access_;
  };

  // A view, or a place in memory.
  template <class View>
  void check(const View& view) const {
    const std::byte* place = nullptr;
    if constexpr (std::is_pointer_v<View>)
      place = reinterpret_cast<const std::byte*>(view);
    else
      place = reinterpret_cast<const std::byte*>(view.data);
    CANZONA_CHECK(place == nullptr || remote_.owns(place),
                  "memory of this process given to the engine");
  }

  int64_t width_;
  int64_t waits_ = 0;
  Products products_ = Products::kPlain;
  int64_t fast_products_ = 0;
  std::unique_ptr<Engine> cpu_ = make_cpu_engine();
  std::unique_ptr<Algebra> algebras_[4];
};

}  // namespace canzona
