// Compares Gram matrices and norms of strips with sums written out here.
// Entries are integers so large that the sum of a strip is exact but the sum of
// two is not: the result shows the order in which strips were added.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/memory.h"

namespace canzona::linalg::cpu_strips_test {
namespace {

// The multiples of 64 nearest to equal parts of a side.
Strips nearest_cuts(int64_t side, int count) {
  Strips strips;
  strips.count = count;
  for (int i = 1; i < count; ++i) {
    const double exact = static_cast<double>(side) * i / count;
    strips.at[static_cast<size_t>(i)] =
        static_cast<int64_t>(std::floor(exact / 64 + 0.5)) * 64;
  }
  return strips;
}

// Adds the two halves, each recursively.
template <class Sum>
Sum tree(const std::vector<Sum>& terms, size_t begin, size_t end) {
  if (end - begin == 1) return terms[begin];
  const size_t middle = (begin + end) / 2;
  return tree(terms, begin, middle) + tree(terms, middle, end);
}

struct Whole {
  int64_t rows, cols;
  std::vector<int64_t> values;
  int64_t at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

Whole whole_numbers(int64_t rows, int64_t cols, int64_t least, uint64_t seed) {
  Whole a{rows, cols, {}};
  uint64_t state = seed;
  for (int64_t i = 0; i < rows * cols; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    a.values.push_back(
        least +
        static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(least)));
  }
  return a;
}

// Sum over the columns of each strip, exact.
template <class Sum>
std::vector<Sum> strip_sums(const Whole& a, const Strips& strips,
                            const std::function<int64_t(int64_t)>& term) {
  std::vector<Sum> sums;
  for (int s = 0; s < strips.count; ++s) {
    int64_t sum = 0;
    const int64_t end =
        s + 1 < strips.count ? strips.at[static_cast<size_t>(s) + 1] : a.cols;
    for (int64_t j = strips.at[static_cast<size_t>(s)]; j < end; ++j)
      sum += term(j);
    sums.push_back(static_cast<Sum>(sum));
    EXPECT_EQ(static_cast<int64_t>(sums.back()), sum) << "not exact";
  }
  return sums;
}

double nearest_bf16(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(value / unit) * unit;
}

// An algebra, and what is known about its numbers.
template <class Sum>
struct Numbers {
  std::unique_ptr<CpuAlgebra> algebra;
  double exact_to;  // largest integer sum that is certainly exact
  bool bf16 = false;
};

template <class Sum>
class StripsCheck {
 public:
  explicit StripsCheck(Numbers<Sum> numbers) : numbers_(std::move(numbers)) {}

  void check_all() {
    for (int64_t m : {1, 5, 40})
      for (int64_t n : {512, 520, 600})
        for (int strips : {1, 2, 4, 8})
          for (bool tall : {false, true}) check(m, n, strips, tall);
  }
  bool order_mattered() const { return order_mattered_; }

 private:
  void check(int64_t m, int64_t n, int strips, bool tall) {
    SCOPED_TRACE(testing::Message() << m << "x" << n << " strips " << strips
                                    << (tall ? " tall" : ""));
    const Strips cuts = nearest_cuts(n, strips);
    int64_t widest = 0;
    for (int s = 0; s < strips; ++s)
      widest = std::max(widest, cuts.end(s, n) - cuts.begin(s));
    const auto least = std::min<int64_t>(
        static_cast<int64_t>(
            std::sqrt(numbers_.exact_to / static_cast<double>(widest)) / 2),
        numbers_.bf16 ? 128 : int64_t{1} << 25);
    const Whole a = whole_numbers(m, n, least, 3);
    std::vector<Sum> source(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        source[static_cast<size_t>(tall ? j * m + i : i * n + j)] =
            static_cast<Sum>(a.at(i, j));
    const Arena::Scope scope(arena_);
    CpuAlgebra& algebra = *numbers_.algebra;
    Operand x = algebra.wide(arena_, m, n, 1, tall, cuts);
    const Load load{.source = matrices(std::as_const(source).data(),
                                       tall ? n : m, tall ? m : n),
                    .transpose = tall};
    algebra.load_normalized(x, load, {});
    if (m == 1 || sizeof(Sum) == 4) check_norm(a, cuts, x.scale);
    check_gram(a, cuts, x, Half::kTriangle);
    check_gram(a, cuts, x, Half::kFull);
  }

  void check_norm(const Whole& a, const Strips& cuts, double scale) {
    const auto sums = strip_sums<double>(a, cuts, [&](int64_t j) {
      int64_t sum = 0;
      for (int64_t i = 0; i < a.rows; ++i) sum += a.at(i, j) * a.at(i, j);
      return sum;
    });
    EXPECT_EQ(scale, 1 / std::sqrt(tree(sums, 0, sums.size())));
  }

  void check_gram(const Whole& a, const Strips& cuts, const Operand& x,
                  Half half) {
    Operand r = numbers_.algebra->symmetric(arena_, a.rows);
    numbers_.algebra->gram(r, x, half);
    const size_t count = static_cast<size_t>(a.rows * (a.rows + 1) / 2);
    std::vector<Sum> raw(count);
    numbers_.algebra->gram_sum(reinterpret_cast<std::byte*>(raw.data()), x,
                               half);
    const std::vector<double> stored = triangle_of(r, x, count);
    const auto alpha = static_cast<Sum>(x.scale * x.scale);
    size_t at = 0;
    for (int64_t i = 0; i < a.rows; ++i)
      for (int64_t j = 0; j <= i; ++j, ++at) {
        const auto sums = strip_sums<Sum>(
            a, cuts, [&](int64_t k) { return a.at(i, k) * a.at(j, k); });
        const Sum total = tree(sums, 0, sums.size());
        Sum in_turn = 0;
        for (Sum sum : sums) in_turn += sum;
        order_mattered_ |= in_turn != total;
        ASSERT_EQ(raw[at], total) << i << ", " << j;
        const double want = numbers_.bf16 ? nearest_bf16(total * alpha)
                                          : static_cast<double>(total * alpha);
        if (cuts.count > 1 || numbers_.bf16)
          ASSERT_EQ(stored[at], want) << i << ", " << j;
        else  // the library scales in its own way
          ASSERT_NEAR(stored[at], want, 1e-6 * want) << i << ", " << j;
      }
  }

  std::vector<double> triangle_of(const Operand& r, const Operand& x,
                                  size_t count) {
    std::vector<std::byte> factor(32 + count * sizeof(Sum));
    numbers_.algebra->put_factor(factor.data(), r, x);
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) {
      Sum value = 0;
      if (numbers_.bf16) {
        uint16_t half = 0;
        std::memcpy(&half, factor.data() + 32 + 2 * i, 2);
        value = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
      } else {
        std::memcpy(&value, factor.data() + 32 + sizeof(Sum) * i, sizeof(Sum));
      }
      values.push_back(value);
    }
    return values;
  }

  Numbers<Sum> numbers_;
  Arena arena_;
  bool order_mattered_ = false;
};

TEST(CpuStrips, AreAddedByTheTreeInBf16) {
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    SCOPED_TRACE(to_string(kernel));
    StripsCheck<float> check({make_bf16_algebra(kernel), 0x1p24, true});
    check.check_all();
    EXPECT_TRUE(check.order_mattered());
  }
}

TEST(CpuStrips, AreAddedByTheTreeInFp32) {
  StripsCheck<float> check({make_real_algebra<float>(), 0x1p24});
  check.check_all();
  EXPECT_TRUE(check.order_mattered());
}

TEST(CpuStrips, AreAddedByTheTreeInFp64) {
  StripsCheck<double> check({make_real_algebra<double>(), 0x1p53});
  check.check_all();
  EXPECT_TRUE(check.order_mattered());
}

// Squares of fp64 may leave its range; the norm does not.
TEST(CpuStrips, NormsAreRightForNumbersOfEverySize) {
  const auto algebra = make_real_algebra<double>();
  Arena arena;
  for (double size : {1e-290, 1e-150, 1.0, 1e150, 1e290})
    for (int strips : {2, 8}) {
      const Arena::Scope scope(arena);
      const std::vector<double> source(3 * 512, size);
      Operand x =
          algebra->wide(arena, 3, 512, 1, false, nearest_cuts(512, strips));
      algebra->load_normalized(x, {.source = matrices(source.data(), 3, 512)},
                               {});
      Operand r = algebra->symmetric(arena, 3);
      algebra->gram(r, x, Half::kTriangle);
      const double entry = reinterpret_cast<const double*>(r.storage)[4];
      EXPECT_NEAR(entry, 1.0 / 3, 1e-12) << size;
    }
}

}  // namespace
}  // namespace canzona::linalg::cpu_strips_test
