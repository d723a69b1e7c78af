#include "canzona/linalg/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include "canzona/base/error.h"

namespace canzona {
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

class ReachedEvent final : public Event {
 public:
  bool reached() override { return true; }
  void wait() override {}
};

}  // namespace

std::unique_ptr<Event> Engine::make_event() {
  return std::make_unique<ReachedEvent>();
}

void Engine::idle(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void Engine::bf16_product(Matrices /*c*/, ConstMatrices /*a*/, Op /*op_a*/,
                          ConstMatrices /*b*/, Op /*op_b*/) {
  throw UsageError("this device has no products of plain bf16 matrices");
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
    if (open.run.data != nullptr && open.run.data + bytes == s.run.data) {
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

// For host memory; a device overrides this.

namespace {

void raise_largest(GradientNumbers* numbers, uint32_t bits) {
  numbers->largest = std::max<int64_t>(numbers->largest, bits);
  numbers->is_finite = numbers->largest < kInfinityBits ? 1 : 0;
}

}  // namespace

void Engine::find_largest(GradientNumbers* numbers,
                          std::span<const Stretch> runs) {
  raise_largest(numbers, largest_bits(runs));
}

void Engine::scale_and_find_largest(GradientNumbers* numbers,
                                    std::span<const ScaledStretch> runs,
                                    double factor) {
  raise_largest(numbers, scale_and_look(runs, factor));
}

void Engine::keep_first_code(int64_t* code, const int32_t* found,
                             std::span<const int64_t> codes) {
  if (*code == 0 && *found > 0) *code = codes[static_cast<size_t>(*found) - 1];
}

void Engine::raise(int64_t* number, const int64_t* other) {
  *number = std::max(*number, *other);
}

void Engine::judge(GradientNumbers* numbers) {
  numbers->skip = numbers->largest >= kInfinityBits ? 1 : 0;
}

void Engine::judge_shared(GradientNumbers* numbers, const int64_t* shared,
                          int64_t least) {
  judge_by_shared(*numbers, shared, least);
}

void Engine::split_squares(int64_t* limbs, const GradientNumbers* numbers) {
  split_into_limbs(limbs, numbers->squares);
}

void Engine::join_squares(GradientNumbers* numbers, const int64_t* limbs) {
  join_limbs(numbers->squares, limbs);
}

void Engine::put_numbers(int64_t* to, std::span<const int64_t> numbers) {
  std::ranges::copy(numbers, to);
}

void Engine::add_squares(GradientNumbers* numbers,
                         std::span<const Stretch> runs) {
  if (numbers->largest == 0 || numbers->largest >= kInfinityBits) return;
  WideSum sum{numbers->squares[0], numbers->squares[1]};
  sum.add(sum_of_squares(
      runs, squares_exponent(static_cast<uint32_t>(numbers->largest))));
  numbers->squares[0] = sum.low;
  numbers->squares[1] = sum.high;
}

void Engine::clip(GradientNumbers* numbers, double limit) {
  numbers->norm = 0;
  if (numbers->skip == 0 && numbers->largest > 0)
    numbers->norm = norm_of_squares(
        {numbers->squares[0], numbers->squares[1]},
        squares_exponent(static_cast<uint32_t>(numbers->largest)));
  numbers->factor = clip_factor(numbers->norm, limit);
  numbers->is_whole = numbers->factor == 1 ? 1 : 0;
}

void Engine::scale_by(Run run, const double* factor, int64_t count) {
  scale(run, *factor, count);
}

}  // namespace canzona
