// For tests: memory that only an engine can access. Its pages cannot be read or
// written while no call of the engine runs, so code that touches device memory
// directly crashes here, as it would on a device.
//
//   RemoteMemory memory;
//   std::byte* there = memory.allocate(64);   // *there kills the process
//   { const RemoteMemory::Access access(memory); … }   // the engine's work
//
// One thread at a time.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"

namespace canzona {

class RemoteMemory final : public Memory {
 public:
  // Makes all of it accessible while it lives; may be nested.
  class Access {
   public:
    explicit Access(RemoteMemory& memory) : memory_(memory) {
      if (memory_.depth_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.depth_ == 0) memory_.protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    RemoteMemory& memory_;
  };

  std::byte* allocate(int64_t bytes) override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t size = (bytes + page) / page * page;
    void* memory = mmap(nullptr, static_cast<size_t>(size),
                        depth_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* first = static_cast<std::byte*>(memory);
    blocks_[first] = size;
    return first;
  }

  void release(std::byte* memory) override {
    const auto block = blocks_.find(memory);
    CANZONA_CHECK(block != blocks_.end(), "memory of somebody else");
    munmap(memory, static_cast<size_t>(block->second));
    blocks_.erase(block);
  }

  bool owns(const std::byte* place) const {
    auto block = blocks_.upper_bound(const_cast<std::byte*>(place));
    if (block == blocks_.begin()) return false;
    --block;
    return place < block->first + block->second;
  }

 private:
  void protect(int access) {
    for (const auto& [first, size] : blocks_)
      mprotect(first, static_cast<size_t>(size), access);
  }

  std::map<std::byte*, int64_t> blocks_;
  int depth_ = 0;
};

// The algebra of a RemoteEngine.
class RemoteAlgebra final : public Algebra {
 public:
  RemoteAlgebra(RemoteMemory& memory, Algebra& cpu)
      : memory_(memory), cpu_(cpu) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) override {
    const RemoteMemory::Access access(memory_);
    return cpu_.wide(arena, rows, cols, count, tall, strips);
  }
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
    const RemoteMemory::Access access(memory_);
    return cpu_.symmetric(arena, rows, count);
  }
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) override {
    check(load.source);
    check(load.momentum);
    const RemoteMemory::Access access(memory_);
    cpu_.load_normalized(x, load, normalization);
  }
  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    const RemoteMemory::Access access(memory_);
    cpu_.normalize_by_gram(x, r, factor);
  }
  void gram(Operand& r, const Operand& x, Half half) override {
    const RemoteMemory::Access access(memory_);
    cpu_.gram(r, x, half);
  }
  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override {
    const RemoteMemory::Access access(memory_);
    cpu_.polynomial(p, r, a, b, c, half, readers);
  }
  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    const RemoteMemory::Access access(memory_);
    cpu_.commuting_product(d, a, b);
  }
  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    const RemoteMemory::Access access(memory_);
    cpu_.sandwich(u, p, r, scratch);
  }
  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    const RemoteMemory::Access access(memory_);
    cpu_.multiply(y, q, x);
  }
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    check(store.out);
    const RemoteMemory::Access access(memory_);
    cpu_.multiply_into(store, q, x);
  }

 private:
  template <class Byte>
  void check(const BasicMatrices<Byte>& m) const {
    for (int64_t i = 0; i < m.count; ++i) {
      const std::byte* first = m.at(i).data;
      CANZONA_CHECK(first == nullptr || memory_.owns(first),
                    "a matrix of this process");
    }
  }

  RemoteMemory& memory_;
  Algebra& cpu_;
};

// For tests: a CPU engine that behaves like that of another device. Only it can
// access its memory (RemoteMemory), it refuses other memory, takes several
// tensors at once, and counts the calls that a program has to wait for.
//
//   RemoteEngine engine(3);
//   rule->transform(engine, step, batch);   // crashes if it reads directly
//   EXPECT_EQ(engine.waits(), 0);
//
// Its bits are those of a CPU engine. Algebras take one matrix at a time, so a
// rule that uses them needs a width of 1.
struct RemoteMemoryHolder {
  RemoteMemory remote_;
};

class RemoteEngine final : private RemoteMemoryHolder, public Engine {
 public:
  explicit RemoteEngine(int64_t width) : Engine(remote_), width_(width) {}

  int64_t waits() const { return waits_; }
  // The products that it was last told to use, and how many calls used fast
  // ones.
  Products products() const { return products_; }
  int64_t fast_products() const { return fast_products_; }
  void set_products(Products products) override { products_ = products; }

  std::string kind() const override { return "remote"; }
  const MemoryOps& memory_ops() const override { return cpu_memory_ops(); }
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

  // A view, or an address.
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
