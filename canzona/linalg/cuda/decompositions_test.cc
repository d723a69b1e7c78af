#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::cuda_decompositions_test {
namespace {

template <class Real>
class CudaDecompositions : public GpuTest {
 protected:
  // Measures how far the columns are from orthonormal.
  static double skewness(const Plain& q) {
    return distance(times(transposed(q), q), identity(q.cols));
  }
  static double allowed(int64_t side) {
    return 3 * tolerance<Real>() * static_cast<double>(side + 1);
  }

  using Decomposition = void (Engine::*)(Matrices, std::span<bool>);
  // Returns the factors; `succeeded_` says which are valid.
  Batch<Real> decompose(Decomposition how, const Batch<Real>& a) {
    succeeded_.assign(static_cast<size_t>(a.count()), false);
    bool results[8] = {};
    GpuBatch<Real> on_gpu(this->gpu(), a);
    (this->gpu().*how)(on_gpu, std::span(results, succeeded_.size()));
    std::copy_n(results, succeeded_.size(), succeeded_.begin());
    return on_gpu.get();
  }
  bool all_succeeded() const {
    return std::find(succeeded_.begin(), succeeded_.end(), false) ==
           succeeded_.end();
  }

  std::vector<bool> succeeded_;
};
TYPED_TEST_SUITE(CudaDecompositions, RealTypes);

TYPED_TEST(CudaDecompositions, EighGivesVectorsAndAscendingValues) {
  for (int64_t n : {0, 1, 2, 17, 64, 129, 530}) {
    const int64_t count = n > 500 ? 2 : 3;
    Batch<TypeParam> a(n, n, count, 3);
    a.randomise(static_cast<uint32_t>(n)).symmetrise();
    GpuBatch<TypeParam> vectors(this->gpu(), a);
    GpuBatch<TypeParam> values(this->gpu(), Batch<TypeParam>(1, n, count, 1));
    std::array<bool, 3> done = {};
    this->gpu().eigh(vectors, values,
                     std::span(done.data(), static_cast<size_t>(count)));
    for (int64_t k = 0; k < count; ++k) {
      ASSERT_TRUE(done[static_cast<size_t>(k)]) << n;
      const Plain v = plain(vectors.get(), k), lambda = plain(values.get(), k);
      Plain scaled = v;
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_LE(lambda.at(0, std::max<int64_t>(j - 1, 0)), lambda.at(0, j));
        for (int64_t i = 0; i < n; ++i) scaled.at(i, j) *= lambda.at(0, j);
      }
      EXPECT_LE(distance(times(scaled, transposed(v)), plain(a, k)),
                this->allowed(n) * (norm(plain(a, k)) + 1))
          << n;
      EXPECT_LE(this->skewness(v), this->allowed(n)) << n;
    }
    EXPECT_TRUE(vectors.get().marks_untouched());
    EXPECT_TRUE(values.get().marks_untouched());
  }
}

// R = QᵀA must be upper triangular and reproduce A.
void expect_factor(const Plain& q, const Plain& a, double allowed,
                   bool positive) {
  const Plain r = times(transposed(q), a);
  const double most = allowed * (norm(a) + 1);
  EXPECT_LE(distance(times(q, r), a), most);
  for (int64_t i = 0; i < r.rows; ++i) {
    EXPECT_TRUE(!positive || r.at(i, i) > 0);
    for (int64_t j = 0; j < i; ++j) EXPECT_NEAR(r.at(i, j), 0, most);
  }
}

constexpr int64_t kTall[][2] = {{3, 0},   {1, 1},     {5, 1},    {17, 17},
                                {40, 13}, {130, 100}, {600, 530}};

TYPED_TEST(CudaDecompositions, QrGivesOrthonormalColumnsOfTheSameSpan) {
  for (const auto& [rows, cols] : kTall) {
    Batch<TypeParam> a(rows, cols, 2, 1);
    a.randomise(4);
    const auto q = this->decompose(&Engine::qr, a);
    ASSERT_TRUE(this->all_succeeded());
    for (int64_t k : {0, 1}) {
      EXPECT_LE(this->skewness(plain(q, k)), this->allowed(cols));
      expect_factor(plain(q, k), plain(a, k), this->allowed(cols), false);
    }
    EXPECT_TRUE(q.marks_untouched());
  }
}

TYPED_TEST(CudaDecompositions, CholeskyQrGivesTheFactorOfAPositiveDiagonal) {
  for (const auto& [rows, cols] : kTall) {
    Batch<TypeParam> a(rows, cols, 2, 1);
    a.randomise(4);
    const auto q = this->decompose(&Engine::cholesky_qr, a);
    ASSERT_TRUE(this->all_succeeded()) << rows << "x" << cols;
    for (int64_t k : {0, 1}) {
      EXPECT_LE(this->skewness(plain(q, k)), this->allowed(cols));
      expect_factor(plain(q, k), plain(a, k), 10 * this->allowed(cols), true);
    }
    EXPECT_TRUE(q.marks_untouched());
  }
}

// These sides are cut into strips, and their products may be split.
TEST_F(GpuTest, CholeskyQrOfLargeMatricesIsOrthonormal) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{2600, 1100}, {1300, 1290}})
    for (Products products : {Products::kPlain, Products::kBf16x3}) {
      Batch<float> a(rows, cols, 2);
      a.randomise(4);
      GpuBatch<float> on_gpu(gpu(), a);
      bool done[2] = {};
      gpu().set_products(products);
      gpu().cholesky_qr(on_gpu, done);
      gpu().set_products(Products::kPlain);
      EXPECT_TRUE(done[0] && done[1]) << rows;
      const Batch<float> q = on_gpu.get();
      Batch<double> wide(rows, cols, 2);
      wide.fill([&](double& x, int64_t k, int64_t i, int64_t j) {
        x = static_cast<double>(q.at(k, i, j));
      });
      GpuBatch<double> again(gpu(), wide);
      GpuBatch<double> gram(gpu(), Batch<double>(cols, cols, 2));
      gpu().symmetric_product(gram, 1, again, Op::kTranspose, 0);
      const double off = distance(plain(gram.get(), 1), identity(cols));
      EXPECT_LE(off, 1e-4) << rows << "x" << cols;
    }
}

// The second matrix needs one more round than the others.
TYPED_TEST(CudaDecompositions, CholeskyQrOfOneIsThatOfTheBatch) {
  Batch<TypeParam> a(300, 290, 3);
  a.randomise(8).fill([&](TypeParam& x, int64_t k, int64_t i, int64_t j) {
    if (k != 1) x += i == j ? 40 : 0;
  });
  const auto together = this->decompose(&Engine::cholesky_qr, a);
  EXPECT_TRUE(this->all_succeeded());
  for (int64_t k = 0; k < 3; ++k) {
    Batch<TypeParam> one(300, 290);
    one.fill([&](TypeParam& x, int64_t, int64_t i, int64_t j) {
      x = a.at(k, i, j);
    });
    const auto alone = this->decompose(&Engine::cholesky_qr, one);
    for (int64_t i = 0; i < 300; ++i)
      for (int64_t j = 0; j < 290; ++j)
        ASSERT_EQ(alone.at(0, i, j), together.at(k, i, j)) << k;
  }
}

TYPED_TEST(CudaDecompositions, CholeskyQrTakesColumnsThatNeedTheShift) {
  const auto apart = static_cast<TypeParam>(
      std::sqrt(std::numeric_limits<TypeParam>::epsilon()) / 4);
  Batch<TypeParam> a(90, 60);
  a.randomise(8).fill(
      [&](TypeParam& x, int64_t, int64_t, int64_t) { x = 1 + apart * x; });
  const auto q = this->decompose(&Engine::cholesky_qr, a);
  ASSERT_TRUE(this->all_succeeded());
  EXPECT_LE(this->skewness(plain(q)), this->allowed(60));
}

TYPED_TEST(CudaDecompositions, CholeskyQrWorksAtTheEndsOfTheRange) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const int exponent : {Limits::max_exponent - 2, Limits::min_exponent}) {
    Batch<TypeParam> a(30, 9);
    a.randomise(8).fill([&](TypeParam& x, int64_t, int64_t, int64_t) {
      x = std::ldexp(x, exponent);
    });
    const auto q = this->decompose(&Engine::cholesky_qr, a);
    ASSERT_TRUE(this->all_succeeded()) << exponent;
    EXPECT_LE(this->skewness(plain(q)), 10 * this->allowed(9)) << exponent;
  }
}

// It lies between well-conditioned ones, which must not be affected.
TYPED_TEST(CudaDecompositions, CholeskyQrTellsWhichMatrixFailed) {
  for (int64_t side : {2, 9, 40, 150}) {
    Batch<TypeParam> a(side + 3, side, 4);
    a.randomise(7).fill([&](TypeParam& x, int64_t k, int64_t i, int64_t j) {
      if (k == 1 && j == side - 1) x = a.at(k, i, 0);
      if (k == 3 && j == side / 2) x = 0;
    });
    const auto q = this->decompose(&Engine::cholesky_qr, a);
    EXPECT_THAT(this->succeeded_,
                testing::ElementsAre(true, false, true, false))
        << side;
    EXPECT_LE(this->skewness(plain(q, 2)), this->allowed(side));
  }
}

TYPED_TEST(CudaDecompositions, CholeskyGivesTheLowerFactor) {
  for (int64_t n : {0, 1, 16, 33, 150, 600}) {
    Batch<TypeParam> a(n, n, 2, 2);
    Batch<TypeParam> root(n, n, 2);
    root.randomise(6);
    for (int64_t k : {0, 1}) {
      const Plain square = times(plain(root, k), transposed(plain(root, k)));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          a.at(k, i, j) =
              static_cast<TypeParam>(square.at(i, j) + (i == j ? 1 : 0));
    }
    const auto factor = this->decompose(&Engine::cholesky, a);
    ASSERT_TRUE(this->all_succeeded()) << n;
    for (int64_t k : {0, 1}) {
      const Plain l = plain(factor, k);
      EXPECT_LE(distance(times(l, transposed(l)), plain(a, k)),
                this->allowed(n) * (norm(plain(a, k)) + 1));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i + 1; j < n; ++j) EXPECT_EQ(l.at(i, j), 0);
    }
    EXPECT_TRUE(factor.marks_untouched());
  }
}

TYPED_TEST(CudaDecompositions, CholeskyTellsWhichMatrixIsNotPositive) {
  for (int64_t n : {3, 600}) {
    Batch<TypeParam> a(n, n, 3);
    a.fill([](TypeParam& x, int64_t k, int64_t i, int64_t j) {
      x = i == j ? static_cast<TypeParam>(k == 1 ? -1 : 4) : TypeParam{0};
    });
    const auto factor = this->decompose(&Engine::cholesky, a);
    EXPECT_THAT(this->succeeded_, testing::ElementsAre(true, false, true));
    EXPECT_EQ(factor.at(2, 0, 0), 2);
  }
}

TYPED_TEST(CudaDecompositions, RefuseShapesTheyAreNotFor) {
  Batch<TypeParam> wide(2, 3);
  EXPECT_THROW(this->decompose(&Engine::qr, wide), InternalError);
  EXPECT_THROW(this->decompose(&Engine::cholesky_qr, wide), InternalError);
  EXPECT_THROW(this->decompose(&Engine::cholesky, wide), InternalError);
}

}  // namespace
}  // namespace canzona::linalg::cuda_decompositions_test
