#include "canzona/linalg/cpu/lower_avx512.h"

#include <gtest/gtest.h>

#include <limits>

#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/memory.h"

#if defined(__x86_64__)

namespace canzona::linalg::lower_avx512_test {
namespace {

class LowerAvx512 : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_features().avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  }

  struct Problem {
    explicit Problem(int64_t side)
        : a(side, side, 1, 3), b(side, side, 1, 5), c(side, side, 1, 7) {
      a.randomise(1);
      b.randomise(2);
      c.randomise(3);
    }
    double product(int64_t i, int64_t j) const {
      double sum = 0;
      for (int64_t k = 0; k < a.cols(); ++k)
        sum += static_cast<double>(a.at(0, i, k)) * b.at(0, k, j);
      return sum;
    }
    Batch<float> a, b, c;
  };

  void multiply(Problem& p, float alpha, float beta) {
    const Arena::Scope scope(arena_);
    const auto rows = [](const Batch<float>& x) {
      return SquareRows{x.view().as<float>(), x.view().row_stride};
    };
    const Matrices c = p.c.view();
    product_lower_avx512(c.as<float>(), c.row_stride, c.rows, alpha, rows(p.a),
                         rows(p.b), beta,
                         arena_.take_array<float>(kLowerScratch));
  }

  Arena arena_;
};

// The sides are at the borders of tiles, panels and what is packed at once.
TEST_F(LowerAvx512, IsTheProductBelowTheDiagonalAndLeavesTheRest) {
  for (const int64_t side :
       {0, 1, 11, 12, 13, 16, 17, 31, 32, 33, 100, 256, 257, 1060}) {
    Problem p(side);
    const int64_t each = side > 300 ? 13 : 1;
    const Batch<float> before = p.c;
    multiply(p, 0.5F, -2);
    for (int64_t i = 0; i < side; i += each)
      for (int64_t j = 0; j < side; j += each) {
        const double old = before.at(0, i, j);
        if (j > i)
          ASSERT_EQ(p.c.at(0, i, j), old) << side << ": " << i << "," << j;
        else
          ASSERT_NEAR(p.c.at(0, i, j), 0.5 * p.product(i, j) - 2 * old,
                      1e-6 * static_cast<double>(side + 2))
              << side << ": " << i << "," << j;
      }
    EXPECT_TRUE(p.c.marks_untouched()) << side;
  }
}

TEST_F(LowerAvx512, BetaZeroIgnoresWhatWasThere) {
  for (const int64_t side : {5, 300}) {
    Problem p(side);
    Problem q = p;
    p.c.fill([](float& x, int64_t, int64_t, int64_t) {
      x = std::numeric_limits<float>::quiet_NaN();
    });
    multiply(p, 1, 0);
    multiply(q, 1, 0);
    for (int64_t i = 0; i < side; ++i)
      for (int64_t j = 0; j <= i; ++j)
        ASSERT_EQ(p.c.at(0, i, j), q.c.at(0, i, j)) << side;
  }
}

// Numbers that are not finite stay in their rows and columns, though tiles
// multiply more than they store.
TEST_F(LowerAvx512, NansReachTheirRowsAndColumnsAlone) {
  constexpr int64_t kSide = 77, kBad = 40;
  Problem p(kSide);
  p.a.at(0, kBad, 3) = std::numeric_limits<float>::quiet_NaN();
  multiply(p, 1, 0);
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j <= i; ++j)
      ASSERT_EQ(std::isnan(p.c.at(0, i, j)), i == kBad) << i << "," << j;
}

}  // namespace
}  // namespace canzona::linalg::lower_avx512_test

#endif
