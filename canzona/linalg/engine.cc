// The defaults of an engine that are made of its other calls; host_defaults.cc
// has the rest.
#include "canzona/linalg/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

#include "canzona/base/error.h"
#include "canzona/linalg/host_side.h"

namespace canzona {
using namespace linalg;
namespace {

// One scalar for all matrices of a batch, without allocating for small ones.
class Repeated {
 public:
  Repeated(double value, int64_t count) {
    if (count > kFew)
      many_.assign(static_cast<size_t>(count), value);
    else
      std::fill_n(few_, count, value);
    size_ = static_cast<size_t>(count);
  }
  std::span<const double> span() const {
    return {many_.empty() ? few_ : many_.data(), size_};
  }

 private:
  static constexpr int64_t kFew = 16;
  double few_[kFew];
  std::vector<double> many_;
  size_t size_;
};

// A few numbers in the engine's memory, whatever memory that is.

template <class T>
void fetch(Engine& engine, T* here, const T* there, int64_t count = 1) {
  engine.download(reinterpret_cast<std::byte*>(here),
                  reinterpret_cast<const std::byte*>(there),
                  count * static_cast<int64_t>(sizeof(T)));
}

template <class T>
T fetched(Engine& engine, const T* there) {
  T here{};
  fetch(engine, &here, there);
  return here;
}

template <class T>
void put(Engine& engine, T* there, const T* here, int64_t count = 1) {
  engine.upload(reinterpret_cast<std::byte*>(there),
                reinterpret_cast<const std::byte*>(here),
                count * static_cast<int64_t>(sizeof(T)));
}

template <class Change>
void change_numbers(Engine& engine, GradientNumbers* numbers,
                    const Change& change) {
  GradientNumbers here = fetched(engine, numbers);
  change(here);
  put(engine, numbers, &here);
}

class ReachedEvent final : public Event {
 public:
  bool reached() override { return true; }
  void wait() override {}
};

class FetchedNotice final : public Notice {
 public:
  void post(Engine& engine, const int32_t* number) override {
    number_ = fetched(engine, number);
  }
  int32_t wait() override { return number_; }

 private:
  int32_t number_ = 0;
};

}  // namespace

Engine::Engine(Memory& memory) : memory_(memory), arena_(memory) {}

Engine::~Engine() = default;

HostSide& Engine::host_side() {
  if (!host_side_) host_side_ = std::make_unique<HostSide>(*this);
  return *host_side_;
}

void Engine::wait_for(Engine& other) { other.synchronize(); }

std::unique_ptr<Event> Engine::record() {
  auto event = make_event();
  record_in(*event);
  return event;
}

std::unique_ptr<Event> Engine::make_event() {
  return std::make_unique<ReachedEvent>();
}

void Engine::record_in(Event& /*event*/) { synchronize(); }

std::unique_ptr<Notice> Engine::make_notice() {
  return std::make_unique<FetchedNotice>();
}

void Engine::if_zero(const int32_t* flag, const std::function<void()>& work) {
  if (fetched(*this, flag) == 0) work();
}

void Engine::idle(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void Engine::bf16_product(Matrices /*c*/, ConstMatrices /*a*/, Op /*op_a*/,
                          ConstMatrices /*b*/, Op /*op_b*/) {
  throw UsageError("this device does not support products of bf16 matrices");
}

namespace {

// `count` elements from (row, col) on, in a column: along the row, or down from
// there.
template <class Views>
Views run_in_square(Views square, int64_t row, int64_t col, int64_t count,
                    bool down) {
  square.data += (row * square.row_stride + col) * size_of(square.dtype);
  square.rows = count;
  square.cols = 1;
  if (!down) square.row_stride = 1;
  return square;
}

// Row `row` of a triangle, as a column.
template <class AnyRun>
auto row_of_triangle(AnyRun triangle, int64_t row, int64_t count) {
  using Byte = std::remove_pointer_t<decltype(triangle.data)>;
  const int64_t first = row * (row + 1) / 2;
  return BasicMatrices<Byte>{triangle.data + first * size_of(triangle.dtype),
                             triangle.dtype,
                             count,
                             1,
                             1,
                             1,
                             count,
                             nullptr};
}

}  // namespace

void Engine::take_triangle(Run triangle, ConstMatrices square) {
  for (int64_t i = 0; i < square.rows; ++i)
    copy(row_of_triangle(triangle, i, i + 1),
         run_in_square(square, i, 0, i + 1, false));
}

void Engine::put_triangle(Matrices square, ConstRun triangle) {
  for (int64_t i = 0; i < square.rows; ++i) {
    copy(run_in_square(square, i, 0, i + 1, false),
         row_of_triangle(triangle, i, i + 1));
    if (i > 0)
      copy(run_in_square(square, 0, i, i, true),
           row_of_triangle(triangle, i, i));
  }
}

void Engine::set_identity(Matrices a, double diagonal) {
  set_identity(a, Repeated(diagonal, a.count).span());
}

void Engine::add_diagonal(Matrices a, double value) {
  add_diagonal(a, Repeated(value, a.count).span());
}

void Engine::axpby(Matrices y, double alpha, ConstMatrices x, double beta) {
  axpby(y, Repeated(alpha, y.count).span(), x, beta);
}

void Engine::scale(Run run, double factor, int64_t count) {
  const Matrices row = {run.data, run.dtype, 1,     count,
                        count,    1,         count, nullptr};
  axpby(row, factor, row, 0);
}

// Adjacent runs are scaled together.
uint32_t Engine::scale_and_look(std::span<const ScaledStretch> runs,
                                double factor) {
  looked_at_.clear();
  ScaledStretch open;
  for (const ScaledStretch& s : runs) {
    const int64_t bytes = open.count * size_of(open.run.dtype);
    if (open.run.data != nullptr && open.run.dtype == s.run.dtype &&
        open.run.data + bytes == s.run.data) {
      open.count += s.count;
    } else {
      if (open.count > 0) scale(open.run, factor, open.count);
      open = s;
    }
    looked_at_.push_back({s.run, s.count});
  }
  if (open.count > 0) scale(open.run, factor, open.count);
  return largest_bits(looked_at_);
}

namespace {

void scale_lines(Engine& engine, const LineUpdate& how) {
  if (how.lines == Lines::kRows)
    engine.scale_rows(how.update, how.update, how.factors);
  else
    engine.scale_columns(how.update, how.update, how.factors);
}

// Flat stages take one matrix at a time, since there may be gaps between them.
Run flat(const Matrices& matrices, int64_t i) {
  return {matrices.at(i).data, matrices.dtype};
}

}  // namespace

void Engine::apply_lines(Matrices weights, const LineUpdate& how,
                         uint16_t* const* rounded) {
  const bool pulls = how.lengths.data != nullptr;
  if (pulls)
    project_lines(weights, how);
  else
    scale_lines(*this, how);
  for (int64_t i = 0; i < how.update.count; ++i)
    apply(flat(weights, i), flat(how.update, i),
          pulls ? Apply{.step = 1} : how.apply, how.update.elements(),
          rounded != nullptr ? rounded[i] : nullptr);
}

void Engine::project_lines(ConstMatrices weights, const LineUpdate& how) {
  const Matrices& u = how.update;
  const Arena::Scope scope(arena());
  scale_lines(*this, how);
  const Matrices moved = arena().matrices(u.dtype, u.rows, u.cols, u.count);
  for (int64_t i = 0; i < u.count; ++i) {
    copy(moved.at(i), weights.at(i));
    apply(flat(moved, i), flat(u, i), how.apply, u.elements());
    copy(u.at(i), weights.at(i));
  }
  scale_rows(moved, moved, how.lengths);
  axpby(u, -1, moved, 1);
}

void Engine::widen(std::span<const Widened> runs) {
  for (const Widened& run : runs) {
    const ConstMatrices from = {reinterpret_cast<const std::byte*>(run.from),
                                DType::kBf16,
                                1,
                                run.count,
                                run.count,
                                1,
                                run.count,
                                nullptr};
    convert(matrices(run.to, 1, run.count), from);
  }
}

// This process computes the numbers of gradients from a copy, which costs a CPU
// next to nothing; a device that must not wait overrides these calls.

namespace {

void raise_largest(GradientNumbers& numbers, uint32_t bits) {
  numbers.largest = std::max<int64_t>(numbers.largest, bits);
  numbers.is_finite = numbers.largest < kInfinityBits ? 1 : 0;
}

}  // namespace

void Engine::find_largest(GradientNumbers* numbers,
                          std::span<const Stretch> runs) {
  const uint32_t bits = largest_bits(runs);
  change_numbers(*this, numbers,
                 [bits](GradientNumbers& n) { raise_largest(n, bits); });
}

void Engine::scale_and_find_largest(GradientNumbers* numbers,
                                    std::span<const ScaledStretch> runs,
                                    double factor) {
  const uint32_t bits = scale_and_look(runs, factor);
  change_numbers(*this, numbers,
                 [bits](GradientNumbers& n) { raise_largest(n, bits); });
}

void Engine::keep_first_code(int64_t* code, const int32_t* found,
                             std::span<const int64_t> codes) {
  const int32_t number = fetched(*this, found);
  if (number > 0 && fetched(*this, code) == 0)
    put(*this, code, &codes[static_cast<size_t>(number) - 1]);
}

void Engine::raise(int64_t* number, const int64_t* other) {
  const int64_t larger =
      std::max(fetched(*this, number), fetched(*this, other));
  put(*this, number, &larger);
}

void Engine::judge_shared(GradientNumbers* numbers, const int64_t* shared,
                          int64_t least) {
  int64_t here[3] = {};
  fetch(*this, here, shared, std::ssize(here));
  change_numbers(*this, numbers,
                 [&](GradientNumbers& n) { judge_by_shared(n, here, least); });
}

void Engine::split_squares(int64_t* limbs, const GradientNumbers* numbers) {
  int64_t here[4] = {};
  split_into_limbs(here, fetched(*this, numbers).squares);
  put(*this, limbs, here, std::ssize(here));
}

void Engine::join_squares(GradientNumbers* numbers, const int64_t* limbs) {
  int64_t here[4] = {};
  fetch(*this, here, limbs, std::ssize(here));
  change_numbers(*this, numbers,
                 [&](GradientNumbers& n) { join_limbs(n.squares, here); });
}

void Engine::put_numbers(int64_t* to, std::span<const int64_t> numbers) {
  put(*this, to, numbers.data(), std::ssize(numbers));
}

void Engine::add_squares(GradientNumbers* numbers,
                         std::span<const Stretch> runs) {
  change_numbers(*this, numbers, [&](GradientNumbers& n) {
    if (n.largest == 0 || n.largest >= kInfinityBits) return;
    WideSum sum{n.squares[0], n.squares[1]};
    sum.add(sum_of_squares(runs,
                           squares_exponent(static_cast<uint32_t>(n.largest))));
    n.squares[0] = sum.low;
    n.squares[1] = sum.high;
  });
}

void Engine::clip(GradientNumbers* numbers, double limit) {
  change_numbers(*this, numbers, [limit](GradientNumbers& n) {
    n.norm = 0;
    if (n.skip == 0 && n.largest > 0)
      n.norm =
          norm_of_squares({n.squares[0], n.squares[1]},
                          squares_exponent(static_cast<uint32_t>(n.largest)));
    n.factor = clip_factor(n.norm, limit);
    n.is_whole = n.factor == 1 ? 1 : 0;
  });
}

}  // namespace canzona
