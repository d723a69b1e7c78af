// An engine of a device whose work happens later (test_late_device.h): every
// call is put into the engine's line, with copies of what belongs to the
// caller. Calls that bring results wait for them. Its bits are those of a CPU
// engine, if whoever uses it orders what must be ordered.
//
//   LateDevice device({.seed = 3});
//   LateEngine engine(device);
//   Runtime runtime(plan, world, engine, {});
//
// Work that is repeated is first called without being issued, as on a GPU, to
// learn whether it asks for results.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_late_device.h"

namespace canzona::linalg {

struct LateMemoryHolder {
  explicit LateMemoryHolder(LateDevice& device) : late_(device) {}
  LateMemory late_;
};

class LateEngine final : private LateMemoryHolder, public Engine {
 public:
  explicit LateEngine(LateDevice& device)
      : LateMemoryHolder(device),
        Engine(late_),
        device_(device),
        line_(device.add_line()) {}
  ~LateEngine() override { device_.drain(); }

  // Calls that had to wait for the device.
  int64_t waits() const { return waits_; }

  std::string kind() const override { return "cpu"; }
  const MemoryOps& memory_ops() const override { return cpu_memory_ops(); }
  std::string describe() const override { return "late " + cpu_->describe(); }
  int64_t batch_width() const override { return cpu_->batch_width(); }
  Algebra& algebra(DType dtype) override {
    auto& own = algebras_[static_cast<size_t>(dtype)];
    if (!own) own = std::make_unique<LateAlgebra>(*this, cpu_->algebra(dtype));
    return *own;
  }

  void upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    result([=, this] { cpu_->upload(to, from, bytes); });
  }
  void download(std::byte* to, const std::byte* from, int64_t bytes) override {
    result([=, this] { cpu_->download(to, from, bytes); });
  }
  void set_zero(std::byte* to, int64_t bytes) override {
    issue([=, this] { cpu_->set_zero(to, bytes); });
  }

  void wait_for(Engine& other) override {
    auto& late = static_cast<LateEngine&>(other);
    if (&late == this) return;
    if (late.leads_) late.take_in(*this);
    if (!dry_) device_.issue_wait(line_, device_.here(late.line_));
  }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<LateEvent>(device_);
  }
  std::unique_ptr<Event> make_timed_event() override {
    return std::make_unique<LateEvent>(device_, true);
  }
  void record_in(Event& event) override {
    static_cast<LateEvent&>(event).record(line_);
  }
  void wait_until(const Event& event) override {
    static_cast<const LateEvent&>(event).hold_back(line_);
  }
  std::unique_ptr<MemoryLane> make_lane() override {
    return std::make_unique<LateLane>(device_);
  }
  std::unique_ptr<Notice> make_notice() override {
    return std::make_unique<LateNotice>(device_);
  }
  void synchronize() override {
    result([] {});
  }
  // Takes no time; who wants to see it does so here.
  std::function<void(double seconds)> on_idle = [](double) {};
  void idle(double seconds) override {
    issue([this, seconds] { on_idle(seconds); });
  }
  void bf16_product(Matrices c, ConstMatrices, Op, ConstMatrices, Op) override {
    ++num_bf16_products;
    issue([c, this] {
      cpu_->set_zero(c.data, c.count * c.rows * c.cols * size_of(c.dtype));
    });
  }
  int64_t num_bf16_products = 0;
  bool shares_matrices = true;  // false: its algebras have no SharedAlgebra

  void repeat(const std::function<void()>& work) override {
    if (repeats_ || dry_) return work();
    leads_ = dry_ = true;
    try {
      work();
      repeats_ = true;
    } catch (const NeedsResult&) {
    }
    dry_ = false;
    let_go();
    work();
    let_go();
    leads_ = repeats_ = false;
  }
  void if_zero(const int32_t* flag,
               const std::function<void()>& work) override {
    if (dry_) return work();
    const auto is_zero = std::make_shared<bool>(false);
    const auto look = [=] { *is_zero = *flag == 0; };
    if (!repeats_) {
      result(look);
      if (*is_zero) work();
      return;
    }
    issue(look);
    const std::shared_ptr<bool> outer = std::exchange(condition_, is_zero);
    work();
    condition_ = outer;
  }

  void guard(const int32_t* flag, const std::function<void()>& work) override {
    const auto is_zero = std::make_shared<bool>(false);
    issue([=] { *is_zero = *flag == 0; });
    const std::shared_ptr<bool> outer = std::exchange(condition_, is_zero);
    work();
    condition_ = outer;
  }

  using Engine::add_diagonal;
  using Engine::axpby;
  using Engine::set_identity;
  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override {
    issue([=, this] { cpu_->product(c, alpha, a, op_a, b, op_b, beta); });
  }
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override {
    issue([=, this] { cpu_->symmetric_product(c, alpha, a, op_a, beta); });
  }
  void commuting_product(Matrices c, ConstMatrices a,
                         ConstMatrices b) override {
    issue([=, this] { cpu_->commuting_product(c, a, b); });
  }
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override {
    result([=, this] { cpu_->eigh(a, values, succeeded); });
  }
  void qr(Matrices a, std::span<bool> succeeded) override {
    result([=, this] { cpu_->qr(a, succeeded); });
  }
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override {
    result([=, this] { cpu_->cholesky_qr(a, succeeded); });
  }
  void cholesky(Matrices a, std::span<bool> succeeded) override {
    result([=, this] { cpu_->cholesky(a, succeeded); });
  }
  void solve_right_transposed(Matrices b, ConstMatrices l) override {
    issue([=, this] { cpu_->solve_right_transposed(b, l); });
  }

  void norms(ConstMatrices a, std::span<double> results) override {
    result([=, this] { cpu_->norms(a, results); });
  }
  void max_abs(ConstMatrices a, std::span<double> results) override {
    result([=, this] { cpu_->max_abs(a, results); });
  }
  void traces(ConstMatrices a, std::span<double> results) override {
    result([=, this] { cpu_->traces(a, results); });
  }
  bool all_finite(ConstRun run, int64_t count) override {
    bool all = false;
    result([&] { all = cpu_->all_finite(run, count); });
    return all;
  }
  void finite(ConstMatrices a, std::span<bool> results) override {
    result([=, this] { cpu_->finite(a, results); });
  }
  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override {
    issue(
        [=, this, kept = kept_of(runs)] { cpu_->find_nonfinite(first, kept); });
  }
  uint32_t largest_bits(std::span<const Stretch> runs) override {
    uint32_t bits = 0;
    result([&] { bits = cpu_->largest_bits(runs); });
    return bits;
  }
  uint32_t scale_and_look(std::span<const ScaledStretch> runs,
                          double factor) override {
    uint32_t bits = 0;
    result([&] { bits = cpu_->scale_and_look(runs, factor); });
    return bits;
  }
  WideSum sum_of_squares(std::span<const Stretch> runs, int exponent) override {
    WideSum sum;
    result([&] { sum = cpu_->sum_of_squares(runs, exponent); });
    return sum;
  }
  void find_largest(GradientNumbers* numbers,
                    std::span<const Stretch> runs) override {
    issue(
        [=, this, kept = kept_of(runs)] { cpu_->find_largest(numbers, kept); });
  }
  void scale_and_find_largest(GradientNumbers* numbers,
                              std::span<const ScaledStretch> runs,
                              double factor) override {
    issue([=, this, kept = kept_of(runs)] {
      cpu_->scale_and_find_largest(numbers, kept, factor);
    });
  }
  void keep_first_code(int64_t* code, const int32_t* found,
                       std::span<const int64_t> codes) override {
    issue([=, this, kept = kept_of(codes)] {
      cpu_->keep_first_code(code, found, kept);
    });
  }
  void raise(int64_t* number, const int64_t* other) override {
    issue([=, this] { cpu_->raise(number, other); });
  }
  void judge_shared(GradientNumbers* numbers, const int64_t* shared,
                    int64_t least) override {
    issue([=, this] { cpu_->judge_shared(numbers, shared, least); });
  }
  void split_squares(int64_t* limbs, const GradientNumbers* numbers) override {
    issue([=, this] { cpu_->split_squares(limbs, numbers); });
  }
  void join_squares(GradientNumbers* numbers, const int64_t* limbs) override {
    issue([=, this] { cpu_->join_squares(numbers, limbs); });
  }
  void put_numbers(int64_t* to, std::span<const int64_t> numbers) override {
    issue([=, this, kept = kept_of(numbers)] { cpu_->put_numbers(to, kept); });
  }
  void add_squares(GradientNumbers* numbers,
                   std::span<const Stretch> runs) override {
    issue(
        [=, this, kept = kept_of(runs)] { cpu_->add_squares(numbers, kept); });
  }
  void clip(GradientNumbers* numbers, double limit) override {
    issue([=, this] { cpu_->clip(numbers, limit); });
  }
  void scale_by(Run run, const double* factor, int64_t count) override {
    issue([=, this] { cpu_->scale_by(run, factor, count); });
  }
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override {
    issue([=, this] { cpu_->column_dots(values, a, b); });
  }
  void line_norms(Matrices norms, ConstMatrices a, Lines lines) override {
    issue([=, this] { cpu_->line_norms(norms, a, lines); });
  }
  void line_factors(Matrices factors, ConstMatrices norms,
                    const LineFactors& how, Matrices moments,
                    ConstMatrices other) override {
    issue(
        [=, this] { cpu_->line_factors(factors, norms, how, moments, other); });
  }
  void scale_rows(Matrices to, ConstMatrices from,
                  ConstMatrices factors) override {
    issue([=, this] { cpu_->scale_rows(to, from, factors); });
  }
  void row_sums(const RowSums& sums, ConstMatrices update,
                ConstMatrices weights) override {
    for (int64_t i = 0; i < update.count; ++i)
      issue([=, this, o = update.at(i), p = weights.at(i)] {
        cpu_->row_sums({sums.update.at(i), sums.weights.at(i), sums.dots.at(i)},
                       o, p);
      });
  }
  void moved_factors(Matrices to, const RowSums& sums, ConstMatrices factors,
                     const Apply& apply, double target, double floor) override {
    issue([=, this] {
      cpu_->moved_factors(to, sums, factors, apply, target, floor);
    });
  }

  void copy(Matrices to, ConstMatrices from) override {
    issue([=, this] { cpu_->copy(to, from); });
  }
  void convert(Matrices to, ConstMatrices from) override {
    issue([=, this] { cpu_->convert(to, from); });
  }
  void set_identity(Matrices a, std::span<const double> diagonals) override {
    issue(
        [=, this, kept = kept_of(diagonals)] { cpu_->set_identity(a, kept); });
  }
  void add_diagonal(Matrices a, std::span<const double> values) override {
    issue([=, this, kept = kept_of(values)] { cpu_->add_diagonal(a, kept); });
  }
  void axpby(Matrices y, std::span<const double> alphas, ConstMatrices x,
             double beta) override {
    issue([=, this, kept = kept_of(alphas)] { cpu_->axpby(y, kept, x, beta); });
  }
  void sort(Orders orders, ConstMatrices values, bool falling) override {
    issue([=, this] { cpu_->sort(orders, values, falling); });
  }
  void permute_columns(Matrices to, ConstMatrices from,
                       ConstOrders orders) override {
    issue([=, this] { cpu_->permute_columns(to, from, orders); });
  }
  void permute_rows(Matrices to, ConstMatrices from,
                    ConstOrders orders) override {
    issue([=, this] { cpu_->permute_rows(to, from, orders); });
  }
  void raise_values(Matrices values, std::span<const double> floors, bool shift,
                    double exponent) override {
    issue([=, this, kept = kept_of(floors)] {
      cpu_->raise_values(values, kept, shift, exponent);
    });
  }
  void inverse_roots(Matrices to, ConstMatrices from, double scale,
                     double floor) override {
    issue([=, this] { cpu_->inverse_roots(to, from, scale, floor); });
  }
  void scale_columns(Matrices to, ConstMatrices from,
                     ConstMatrices factors) override {
    issue([=, this] { cpu_->scale_columns(to, from, factors); });
  }
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override {
    issue([=, this] { cpu_->scale_to_norm(a, reference, epsilon); });
  }
  void limit_norms(Matrices a, double norm, double epsilon) override {
    issue([=, this] { cpu_->limit_norms(a, norm, epsilon); });
  }

  void momentum(const MomentumStage& stage, int64_t count) override {
    issue([=, this] { cpu_->momentum(stage, count); });
  }
  void apply(Run weights, ConstRun update, const Apply& apply, int64_t count,
             uint16_t* rounded) override {
    issue([=, this] { cpu_->apply(weights, update, apply, count, rounded); });
  }
  void adam(ConstRun grad, Run m, Run v, Run out, const AdamCoefficients& adam,
            int64_t count) override {
    issue([=, this] { cpu_->adam(grad, m, v, out, adam, count); });
  }
  void adam_apply(std::span<const AdamRuns> tensors,
                  const AdamCoefficients& adam, const Apply& apply) override {
    issue([=, this, kept = kept_of(tensors)] {
      cpu_->adam_apply(kept, adam, apply);
    });
  }
  void round_weights(uint16_t* to, const float* from, int64_t count) override {
    issue([=, this] { cpu_->round_weights(to, from, count); });
  }
  void split_masters(uint16_t* weights, uint16_t* remainders, const float* from,
                     int64_t count) override {
    issue([=, this] { cpu_->split_masters(weights, remainders, from, count); });
  }
  void join_masters(float* to, const uint16_t* weights,
                    const uint16_t* remainders, int64_t count) override {
    issue([=, this] { cpu_->join_masters(to, weights, remainders, count); });
  }

 private:
  struct NeedsResult {};

  // Operands of a CPU carry numbers that only its work knows, and are made by
  // it: the caller has a place in its arena that stands for one.
  class LateAlgebra final : public Algebra, public SharedAlgebra {
   public:
    LateAlgebra(LateEngine& engine, Algebra& cpu)
        : engine_(engine), cpu_(cpu), shared_(*cpu.shared()) {}

    Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
                 bool tall, const Strips& strips) override {
      return make(arena,
                  {.rows = rows,
                   .cols = cols,
                   .count = count,
                   .tall = tall,
                   .strips = strips},
                  [=, this](Arena& own) {
                    return cpu_.wide(own, rows, cols, count, tall, strips);
                  });
    }
    Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
      return make(
          arena, {.rows = rows, .cols = rows, .count = count},
          [=, this](Arena& own) { return cpu_.symmetric(own, rows, count); });
    }
    void load_normalized(Operand& x, const Load& load,
                         const Normalization& normalization) override {
      engine_.issue([=, this, at = x.storage, source = places_of(load.source),
                     momentum = places_of(load.momentum)] {
        Load kept = load;
        if (!source.empty()) kept.source.places = source.data();
        if (!momentum.empty()) kept.momentum.places = momentum.data();
        cpu_.load_normalized(now(at), kept, normalization);
      });
    }
    void normalize_by_gram(Operand& x, Operand& r, double factor) override {
      engine_.issue([=, this, x = x.storage, r = r.storage] {
        cpu_.normalize_by_gram(now(x), now(r), factor);
      });
    }
    void gram(Operand& r, const Operand& x, Half half) override {
      engine_.issue([=, this, r = r.storage, x = x.storage] {
        cpu_.gram(now(r), now(x), half);
      });
    }
    void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                    Half half, Readers readers) override {
      engine_.issue([=, this, p = p.storage, r = r.storage] {
        cpu_.polynomial(now(p), now(r), a, b, c, half, readers);
      });
    }
    void commuting_product(Operand& d, const Operand& a,
                           const Operand& b) override {
      engine_.issue([=, this, d = d.storage, a = a.storage, b = b.storage] {
        cpu_.commuting_product(now(d), now(a), now(b));
      });
    }
    void sandwich(Operand& u, const Operand& p, const Operand& r,
                  Operand& scratch) override {
      engine_.issue([=, this, u = u.storage, p = p.storage, r = r.storage,
                     scratch = scratch.storage] {
        cpu_.sandwich(now(u), now(p), now(r), now(scratch));
      });
    }
    void multiply(Operand& y, const Operand& q, const Operand& x) override {
      engine_.issue([=, this, y = y.storage, q = q.storage, x = x.storage] {
        cpu_.multiply(now(y), now(q), now(x));
      });
    }
    void multiply_into(const Store& store, const Operand& q,
                       const Operand& x) override {
      std::vector<uint16_t*> rounded;
      if (store.rounded != nullptr)
        rounded.assign(store.rounded, store.rounded + store.out.count);
      const Apply apply = store.apply != nullptr ? *store.apply : Apply{};
      engine_.issue([=, this, places = places_of(store.out), q = q.storage,
                     x = x.storage] {
        Store kept = store;
        if (!places.empty()) kept.out.places = places.data();
        if (store.apply != nullptr) kept.apply = &apply;
        if (store.rounded != nullptr) kept.rounded = rounded.data();
        cpu_.multiply_into(kept, now(q), now(x));
      });
    }

    SharedAlgebra* shared() override {
      return engine_.shares_matrices ? this : nullptr;
    }
    int64_t sum_bytes() const override { return shared_.sum_bytes(); }
    int64_t rounded_bytes() const override { return shared_.rounded_bytes(); }
    bool shares_gram_norm() const override {
      return shared_.shares_gram_norm();
    }
    Operand part(Arena& arena, int64_t rows, int64_t cols, bool tall,
                 const Strips& strips) override {
      return make(arena,
                  {.rows = rows, .cols = cols, .tall = tall, .strips = strips},
                  [=, this](Arena& own) {
                    return shared_.part(own, rows, cols, tall, strips);
                  });
    }
    void load_parts(Operand& x, const Load& load,
                    std::span<NormPart> parts) override {
      engine_.issue([=, this, x = x.storage] {
        shared_.load_parts(now(x), load, parts);
      });
    }
    // The caller learns nothing, so numbers must not have to be loaded anew.
    bool normalize(Operand& x, const Load& load, std::span<const NormPart> all,
                   const Normalization& by,
                   std::span<NormPart> parts) override {
      engine_.issue([=, this, x = x.storage] {
        CANZONA_CHECK(shared_.normalize(now(x), load, all, by, parts),
                      "norms that a late device cannot ask for once more");
      });
      return true;
    }
    void gram_sum(std::byte* sum, const Operand& x, Half half) override {
      engine_.issue(
          [=, this, x = x.storage] { shared_.gram_sum(sum, now(x), half); });
    }
    void round_sum(std::byte* rounded, const std::byte* sum, int64_t count,
                   const Operand& x) override {
      engine_.issue([=, this, x = x.storage] {
        shared_.round_sum(rounded, sum, count, now(x));
      });
    }
    void take_gram(Operand& r, const std::byte* rounded) override {
      engine_.issue(
          [=, this, r = r.storage] { shared_.take_gram(now(r), rounded); });
    }
    void put_factor(std::byte* factor, const Operand& q,
                    const Operand& x) override {
      engine_.issue([=, this, q = q.storage, x = x.storage] {
        shared_.put_factor(factor, now(q), now(x));
      });
    }
    void take_factor(Operand& q, Operand& x, const std::byte* factor,
                     double only_a) override {
      engine_.issue([=, this, q = q.storage, x = x.storage] {
        shared_.take_factor(now(q), now(x), factor, only_a);
      });
    }

   private:
    template <class Byte>
    static std::vector<Byte*> places_of(const BasicMatrices<Byte>& m) {
      if (m.places == nullptr) return {};
      return {m.places, m.places + m.count};
    }
    // The operand as the line makes it, later; `seen` is what the caller holds.
    struct Made {
      Arena arena;
      Arena::Scope scope{arena};
      Operand operand;
    };
    Operand make(Arena& arena, Operand seen,
                 std::function<Operand(Arena&)> make_one) {
      seen.storage = arena.take(1);
      engine_.issue([this, at = seen.storage, make_one] {
        auto made = std::make_unique<Made>();
        made->operand = make_one(made->arena);
        made_[at] = std::move(made);
      });
      return seen;
    }
    Operand& now(const std::byte* at) { return made_.at(at)->operand; }

    LateEngine& engine_;
    Algebra& cpu_;
    SharedAlgebra& shared_;
    std::unordered_map<const std::byte*, std::unique_ptr<Made>> made_;
  };

  class LateNotice final : public Notice {
   public:
    explicit LateNotice(LateDevice& device) : device_(device) {}
    void post(Engine& engine, const int32_t* number) override {
      auto& late = static_cast<LateEngine&>(engine);
      if (late.dry_) return;
      late.issue([=, this] { number_ = *number; });
      posted_.push_back(device_.here(late.line_));
    }
    int32_t wait() override {
      CANZONA_CHECK(!posted_.empty(), "a notice that was never posted");
      device_.wait(posted_.front());
      posted_.pop_front();
      return number_;
    }

   private:
    LateDevice& device_;
    std::deque<LateDevice::Point> posted_;
    int32_t number_ = 0;
  };

  template <class T>
  static std::vector<T> kept_of(std::span<const T> items) {
    return {items.begin(), items.end()};
  }
  void issue(std::function<void()> work) {
    if (dry_) return;
    if (condition_ == nullptr) return device_.issue(line_, std::move(work));
    device_.issue(line_, [if_so = condition_, work = std::move(work)] {
      if (*if_so) work();
    });
  }
  void result(std::function<void()> work) {
    if (dry_) throw NeedsResult();
    ++waits_;
    issue(std::move(work));
    device_.wait(device_.here(line_));
  }

  // Engines that wait for this one inside of repeated work take part in it.
  void take_in(LateEngine& other) {
    other.dry_ = dry_;
    other.condition_ = condition_;
    taken_in_.push_back(&other);
  }
  void let_go() {
    for (LateEngine* other : taken_in_) {
      other->dry_ = false;
      other->condition_ = nullptr;
    }
    taken_in_.clear();
  }

  LateDevice& device_;
  size_t line_;
  std::unique_ptr<Engine> cpu_ = make_cpu_engine();
  std::unique_ptr<Algebra> algebras_[4];
  bool dry_ = false;
  bool repeats_ = false;
  bool leads_ = false;
  std::vector<LateEngine*> taken_in_;
  std::shared_ptr<bool> condition_;
  int64_t waits_ = 0;
};

}  // namespace canzona::linalg
